#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

struct ClickFileOptions {
  std::string path;
  /// Skips and counts malformed rows; otherwise the first one is an error.
  bool skips_malformed = false;
  /// Folder for the index and for the decompressed copy of a compressed file; created if it is missing.
  /// Empty: the folder .lockstep next to the file, or if that cannot be written, the user's cache folder
  /// ($XDG_CACHE_HOME/lockstep/clicks, ~/.cache/lockstep/clicks).
  std::string index_folder{};
  /// Smaller files are indexed in memory at each start and leave no index behind, unless they are compressed.
  uint64_t save_index_from_bytes = uint64_t{64} << 20;
  /// Receives one line if opening the file takes long, for instance "clicks.tsv: indexing its rows, once".
  std::function<void(const std::string&)> on_message{};
};

}  // namespace lockstep
