#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// Files and folders in an ImageFolder's path that are not read: files of other formats, images outside the
/// folders of the classes, and folders within those, which are not searched. Files that a desktop system
/// creates (names that begin with a dot, `__MACOSX`, `Thumbs.db`, `desktop.ini`) do not count.
struct IgnoredFiles {
  /// Relative to the path and sorted; those of folders end with a slash: `cat/deep/`, `cat/moving.gif`.
  std::vector<std::string> names;

  /// Returns one line: the most common kinds and the first names, such as
  /// "8 .gif, 3 .bmp, 1 folder: cat/a.gif, cat/b.gif, cat/deep/, ...". Empty if there is nothing.
  std::string describe(size_t max_names = 3) const;
};

}  // namespace lockstep
