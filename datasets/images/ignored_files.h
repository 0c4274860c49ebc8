#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// What an ImageFolder's path holds beside the images: files of other formats, images that do not lie in the
/// folder of a class, and folders within those of classes, which are not searched. Anything that a desktop
/// system leaves behind (names that begin with a dot, `__MACOSX`, `Thumbs.db`, `desktop.ini`) does not count.
struct IgnoredFiles {
  /// Relative to the path and sorted; those of folders end with a slash: `cat/deep/`, `cat/moving.gif`.
  std::vector<std::string> names;

  /// Returns one line: the most common kinds and the first names, such as
  /// "8 .gif, 3 .bmp, 1 folder: cat/a.gif, cat/b.gif, cat/deep/, ...". Empty if there is nothing.
  std::string describe(size_t max_names = 3) const;
};

}  // namespace lockstep
