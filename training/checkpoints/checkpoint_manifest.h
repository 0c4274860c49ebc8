#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A stretch of a file: a tensor with what leads to it, or what else the file holds.
struct CheckpointPart {
  std::string name;    ///< such as model.conv1.weight
  uint64_t size = 0;   ///< in bytes
  std::string sha256;  ///< of them, in hexadecimal digits
  bool operator==(const CheckpointPart&) const = default;
};

struct CheckpointFile {
  std::string name;                   ///< in the checkpoint's folder
  std::vector<CheckpointPart> parts;  ///< one after another, the whole file
  uint64_t size() const;
  bool operator==(const CheckpointFile&) const = default;
};

/// What a checkpoint consists of: manifest.json in its folder, whose own checksum is in manifest.sha256 in
/// the form that sha256sum writes.
struct CheckpointManifest {
  int64_t step = 0;        ///< steps finished, of all epochs
  int64_t epoch = 0;       ///< epochs finished
  int64_t generation = 0;  ///< how often its job had been started before
  bool is_best = false;    ///< of its run so far
  std::string version;     ///< of Lockstep
  std::vector<CheckpointFile> files;
  bool operator==(const CheckpointManifest&) const = default;
};

/// What is read of a manifest at most. A part takes some 150 bytes: room for a hundred thousand tensors.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{16} << 20;

/// As manifest.json.
std::string manifest_text(const CheckpointManifest& manifest);

/// Reads such a text. Throws CheckpointError naming `source`, where it comes from.
CheckpointManifest parse_manifest(const std::string& text, const std::string& source);

/// Reads manifest.json of `folder` once its checksum was found right, before anything of it is looked at.
/// Throws CheckpointError naming the file, where it is missing, damaged, or of a later format.
CheckpointManifest read_manifest(const std::string& folder);

/// Reads a file of the checkpoint in `folder` whole, and compares each part with its checksum. Allocates
/// nothing before the size is found right. Throws CheckpointError naming the file and the first part that is
/// damaged.
std::string read_checkpoint_file(const std::string& folder, const CheckpointFile& file);

}  // namespace lockstep
