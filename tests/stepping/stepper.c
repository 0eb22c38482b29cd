/* Runs a twin of the calling process one instruction at a time, with ptrace; x86-64 Linux.
 *
 * The test compiles this and calls it by ctypes: a step costs two system calls here, and
 * twenty microseconds in Python. A child made by begin() is always killed and reaped by the
 * caller; should the caller die first, the kernel kills it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define TID_MASK 0x3FFFFFFFu /* of a robust mutex' first word */

enum { FAILED = -1, REACHED = 0, COMMITTED = 1, ENDED = 2 };

/* Code by address. Borrowed code (libc, vdso) counts as its caller's. */
struct area {
    uint64_t start, end, is_borrowed;
};

struct walk {
    const struct area *areas;
    uint64_t area_count;
    const volatile uint64_t *mutexes[2]; /* words in shared memory */
    const volatile uint64_t *undo_counts[2];
    uint64_t *trace; /* the address of every kill point passed, if not NULL */
    uint64_t limit;  /* stop at the kill point of this number */
    uint64_t count;  /* kill points passed */
    uint64_t is_inside; /* the last code that was not borrowed is in the areas */
    uint64_t was_armed;
};

/* Fork without Python noticing: the child goes on with the handles of its parent, whose
 * caches suit the bytes in memory. 0 in the child, once the parent lets it run; in the
 * parent its pid, stopped, or -errno. */
int begin(void) {
    int status;
    pid_t child = fork();
    if (child < 0) return -errno;
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) _exit(errno);
        raise(SIGSTOP);
        return 0;
    }
    if (waitpid(child, &status, 0) != child) return -errno;
    if (WIFEXITED(status)) return -WEXITSTATUS(status);
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_EXITKILL)) return -errno;
    return child;
}

static uint64_t instruction(pid_t child) {
    return (uint64_t)ptrace(PTRACE_PEEKUSER, child, offsetof(struct user, regs.rip), NULL);
}

/* Let the child go until it is stopped by a trap; ENDED if it ends in order instead. */
static int resume(pid_t child, int how) {
    int status;
    if (ptrace(how, child, NULL, NULL)) return FAILED;
    if (waitpid(child, &status, 0) != child) return FAILED;
    if (WIFEXITED(status)) return WEXITSTATUS(status) ? FAILED : ENDED;
    return WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP ? REACHED : FAILED;
}

/* Full speed to the first time that `address` is about to be executed. */
int run_to(pid_t child, uint64_t address) {
    errno = 0;
    long code = ptrace(PTRACE_PEEKTEXT, child, address, NULL);
    if (errno || ptrace(PTRACE_POKETEXT, child, address, (code & ~0xFFL) | 0xCC)) return FAILED;
    int outcome = resume(child, PTRACE_CONT);
    if (outcome != REACHED) return outcome;
    if (instruction(child) != address + 1) return FAILED;
    if (ptrace(PTRACE_POKETEXT, child, address, code)) return FAILED;
    if (ptrace(PTRACE_POKEUSER, child, offsetof(struct user, regs.rip), address)) return FAILED;
    return REACHED;
}

static int is_kill_point(struct walk *walk, pid_t child, uint64_t address) {
    uint64_t n = 0;
    while (n < walk->area_count &&
           (address < walk->areas[n].start || address >= walk->areas[n].end))
        n++;
    if (n == walk->area_count)
        walk->is_inside = 0;
    else if (!walk->areas[n].is_borrowed)
        walk->is_inside = 1;
    return walk->is_inside || (*walk->mutexes[0] & TID_MASK) == (uint64_t)child ||
           (*walk->mutexes[1] & TID_MASK) == (uint64_t)child;
}

/* Step on to the kill point number `limit`, or until an undo log has been disarmed. A kill
 * point is an instruction of the areas, of code borrowed by them, or of any code at all
 * while the child holds a lock. */
int step(struct walk *walk, pid_t child) {
    for (;;) {
        uint64_t address = instruction(child);
        if (is_kill_point(walk, child, address)) {
            if (walk->count == walk->limit) return REACHED;
            if (walk->trace) walk->trace[walk->count] = address;
            walk->count++;
        }
        int outcome = resume(child, PTRACE_SINGLESTEP);
        if (outcome != REACHED) return outcome;
        uint64_t armed = *walk->undo_counts[0] | *walk->undo_counts[1];
        uint64_t was_armed = walk->was_armed;
        walk->was_armed = armed;
        if (was_armed && !armed && walk->trace) return COMMITTED;
    }
}
