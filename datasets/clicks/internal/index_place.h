#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// The place of the index of a file.
struct IndexPlace {
  std::string index;
  std::string rows;  ///< the decompressed copy, if the file is compressed
};

/// Returns the places for a file's index, best first: in `index_folder`, or if that is empty, in the folder
/// .lockstep next to the file and in the user's cache folder, $XDG_CACHE_HOME/lockstep/clicks or
/// ~/.cache/lockstep/clicks.
std::vector<IndexPlace> index_places(const std::string& file, const std::string& index_folder);

}  // namespace lockstep
