#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A contiguous part of a file: a tensor with the bytes that precede it, or the rest of the file.
struct CheckpointPart {
  std::string name;    ///< Such as model.conv1.weight.
  uint64_t size = 0;   ///< In bytes.
  std::string sha256;  ///< Checksum of these bytes, in hexadecimal digits.
  bool operator==(const CheckpointPart&) const = default;
};

struct CheckpointFile {
  std::string name;                   ///< Name in the checkpoint's folder.
  std::vector<CheckpointPart> parts;  ///< Consecutive parts that make up the whole file.
  uint64_t size() const;
  bool operator==(const CheckpointFile&) const = default;
};

/// Contents of a checkpoint, stored as manifest.json in its folder. manifest.sha256 holds its checksum in the
/// format of sha256sum.
struct CheckpointManifest {
  int64_t step = 0;        ///< Steps finished in all epochs.
  int64_t epoch = 0;       ///< Epochs finished.
  int64_t generation = 0;  ///< Number of earlier starts of the job.
  bool is_best = false;    ///< Whether it is the best of its run so far.
  std::string version;     ///< Version of Lockstep.
  std::vector<CheckpointFile> files;
  bool operator==(const CheckpointManifest&) const = default;
};

/// Maximum size of a manifest that is read. A part takes about 150 bytes, so it has room for 100,000 tensors.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{16} << 20;

/// Returns the text of manifest.json.
std::string manifest_text(const CheckpointManifest& manifest);

/// Parses the text of a manifest. Throws CheckpointError naming `source`, the origin of the text.
CheckpointManifest parse_manifest(const std::string& text, const std::string& source);

/// Reads manifest.json of `folder`, and checks its checksum before parsing it. Throws CheckpointError naming
/// the file if it is missing, damaged, or of a later format.
CheckpointManifest read_manifest(const std::string& folder);

/// Reads a complete file of the checkpoint in `folder`, and checks the checksum of each part. Allocates
/// nothing before it has checked the size. Throws CheckpointError naming the file and the first damaged part.
std::string read_checkpoint_file(const std::string& folder, const CheckpointFile& file);
/// Throws as read_checkpoint_file() does. Reads the file in pieces, so it needs little memory.
void check_checkpoint_file(const std::string& folder, const CheckpointFile& file);

}  // namespace lockstep
