#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns the files that `places` name, in their order. A place is a file; a folder, which stands for all
/// files in it, but not for those in its subfolders and those whose name begins with "." or "_"; or a pattern
/// of the shell such as day_*. A folder's and a pattern's files are sorted by natural_less(). A file that
/// several places name is listed once, at the first of them.
///
/// Throws DataError naming the place if there is no such file, the folder has no file, or the pattern matches
/// none.
std::vector<std::string> find_data_files(const std::vector<std::string>& places);

/// Orders names as people count: day_2 comes before day_10.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace lockstep
