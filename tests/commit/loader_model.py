"""What a 3.x broker makes of the names in a partition folder, as a small model for the tests without Java."""

from __future__ import annotations

from pathlib import Path

from tests.commit.scene import BASES, EXTENSIONS, GROUPS, name

Operation = tuple[str, str, str]


def loading(names: set[str], *, clean: bool) -> list[Operation]:
    """What a 3.x broker does to the names of the folder when it loads it (``LogLoader.load``, 3.9.0)."""
    done: list[Operation] = [("unlink", each, "") for each in sorted(names) if each.endswith(".deleted")]
    cleaned = sorted(each for each in names if each.endswith(".cleaned"))
    swaps = sorted(each for each in names if each.endswith(".swap"))
    if cleaned:
        void = [each for each in swaps if int(each[:20]) >= int(cleaned[0][:20])]
        done += [("unlink", each, "") for each in [*cleaned, *void]]
        swaps = [each for each in swaps if each not in void]
    for base, sources in GROUPS:
        if name(base, ".log.swap") in swaps:
            gone = [name(each, e) for each in sources for e in EXTENSIONS]
            done += [("unlink", each, "") for each in gone if each in names]
            # A segment that is recovered, as one without an index always is, gets a new .txnindex as well.
            recovered = not clean or name(base, ".index.swap") not in swaps
            for extension in EXTENSIONS:
                swap = name(base, extension + ".swap")
                if swap in swaps:
                    done.append(("rename", swap, name(base, extension)))
                elif extension != ".txnindex" or recovered:
                    done.append(("create", name(base, extension), ""))
            swaps = [each for each in swaps if not each.startswith(name(base, ""))]
    done += [("rename", each, each.removesuffix(".swap")) for each in swaps]
    if not clean:
        done.append(("touch", name(BASES[-1], ".index"), ""))
    return done


def served(folder: Path) -> dict[str, bytes]:
    """The logs that a broker would serve if it were started now."""
    files = {path.name: path for path in folder.iterdir() if path.is_file()}
    for operation, source, target in loading(set(files), clean=True):
        if operation == "unlink":
            del files[source]
        elif operation == "rename":
            files[target] = files.pop(source)
    return {each: path.read_bytes() for each, path in files.items() if each.endswith(".log")}
