/* Runs a twin of the calling process one instruction at a time, with ptrace; x86-64 Linux.
 *
 * The test compiles this and calls it by ctypes: done from Python, a step would cost ten
 * times as much. The caller kills and reaps every child that begin() makes; should the
 * caller die first, the kernel kills it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define TID_MASK 0x3FFFFFFFu /* the holder, in the first word of a robust mutex */
#define REGISTER(name) offsetof(struct user, name)

enum { FAILED = -1, REACHED = 0, COMMITTED = 1, ENDED = 2 };

/* Code, by address. Borrowed code (libc, vdso) counts as its caller's. */
struct area {
    uint64_t start, end, is_borrowed;
};

struct walk {
    const struct area *areas;
    uint64_t area_count;
    const volatile uint64_t *mutexes[2]; /* words in shared memory */
    const volatile uint64_t *undo_counts[2];
    uint64_t *trace;    /* where to write the address of every kill point; NULL: nowhere */
    uint64_t limit;     /* stop at the kill point of this number */
    uint64_t count;     /* kill points passed */
    uint64_t address;   /* of the instruction stopped at */
    uint64_t is_inside; /* the last code that was not borrowed is in the areas */
    uint64_t was_armed;
};

/* Fork without Python noticing: the child goes on with the handles of its parent, whose
 * caches suit the bytes in shared memory. In the parent: its pid, stopped, or -errno; in
 * the child: 0, once the parent lets it run. */
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

/* Let the child go until a trap stops it; ENDED if it ends in order instead. */
static int resume(pid_t child, int how) {
    int status;
    if (ptrace(how, child, NULL, NULL)) return FAILED;
    if (waitpid(child, &status, 0) != child) return FAILED;
    if (WIFEXITED(status)) return WEXITSTATUS(status) ? FAILED : ENDED;
    return WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP ? REACHED : FAILED;
}

/* Full speed until `address` is about to be executed for the `times`-th time. */
int run_to(pid_t child, uint64_t address, uint64_t times) {
    int outcome = REACHED;
    if (ptrace(PTRACE_POKEUSER, child, REGISTER(u_debugreg[0]), address)) return FAILED;
    if (ptrace(PTRACE_POKEUSER, child, REGISTER(u_debugreg[7]), 1)) return FAILED;
    while (outcome == REACHED && times--) outcome = resume(child, PTRACE_CONT);
    if (outcome == REACHED && ptrace(PTRACE_POKEUSER, child, REGISTER(u_debugreg[7]), 0))
        return FAILED;
    return outcome;
}

static int is_kill_point(struct walk *walk, pid_t child) {
    const struct area *area = walk->areas;
    const struct area *end = area + walk->area_count;
    while (area < end && (walk->address < area->start || walk->address >= area->end)) area++;
    if (area == end)
        walk->is_inside = 0;
    else if (!area->is_borrowed)
        walk->is_inside = 1;
    return walk->is_inside || (*walk->mutexes[0] & TID_MASK) == (uint64_t)child ||
           (*walk->mutexes[1] & TID_MASK) == (uint64_t)child;
}

/* Step on to the kill point number `limit`; when tracing, only until a transaction commits.
 * Kill points are the instructions of the areas, of code borrowed by them, and, while the
 * child holds a lock, of all other code. */
int step(struct walk *walk, pid_t child) {
    for (;;) {
        walk->address = (uint64_t)ptrace(PTRACE_PEEKUSER, child, REGISTER(regs.rip), NULL);
        if (is_kill_point(walk, child)) {
            if (walk->count == walk->limit) return REACHED;
            if (walk->trace) walk->trace[walk->count] = walk->address;
            walk->count++;
        }
        int outcome = resume(child, PTRACE_SINGLESTEP);
        if (outcome != REACHED) return outcome;
        int was_armed = walk->was_armed != 0;
        walk->was_armed = *walk->undo_counts[0] | *walk->undo_counts[1];
        if (walk->trace && was_armed && !walk->was_armed) return COMMITTED;
    }
}
