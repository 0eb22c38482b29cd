"""What the packages export is what their modules define for users, under the same names."""

import queue

import persist
import persist.errors
import shmq
import shmq.errors


def public_errors(module: object) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }


def test_every_error_is_exported() -> None:
    assert public_errors(shmq.errors) <= set(shmq.__all__)
    assert public_errors(persist.errors) <= set(persist.__all__)


def test_every_exported_name_is_there_once() -> None:
    for package in (persist, shmq):
        assert len(set(package.__all__)) == len(package.__all__)
        for name in package.__all__:
            assert hasattr(package, name), name


def test_every_error_has_one_base_and_existing_loops_work() -> None:
    for name in public_errors(shmq.errors):
        assert issubclass(getattr(shmq, name), shmq.ShmqError)
    assert issubclass(shmq.QueueFull, queue.Full)
    assert issubclass(shmq.QueueEmpty, queue.Empty)


def test_everything_exported_says_what_it_is() -> None:
    for name in shmq.__all__:
        assert getattr(shmq, name).__doc__, name
