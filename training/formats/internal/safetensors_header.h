#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The header of a .safetensors file, as described at https://huggingface.co/docs/safetensors: 8 bytes with
// the length of the JSON (little-endian), the JSON, then the tensors' bytes in row-major order without gaps.

namespace lockstep {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< the format's name, such as F32
  std::vector<int64_t> shape;
  uint64_t begin = 0;  ///< offset of the tensor's bytes from the header's end
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

constexpr size_t kSafetensorsLengthBytes = 8;
constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  ///< the format's own limit

/// Returns the bytes of one element; none if LibTorch lacks the dtype.
std::optional<uint64_t> safetensors_element_size(std::string_view dtype);

/// Decodes the length of the JSON from the first eight bytes of `file`. Throws CheckpointError if it exceeds
/// the file's size or the format's limit.
uint64_t read_safetensors_length(const unsigned char* length, uint64_t file_size, const std::string& file);

/// Parses the JSON of a header. `data_size` is the number of bytes after it. Whatever `json` contains, the
/// resulting tensors fill these bytes exactly, and the result is at most a small multiple of the size of
/// `json`. Otherwise throws CheckpointError naming `file` and the tensor.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_size,
                                           const std::string& file);

/// Sets `begin` and `end` of the tensors: contiguous, largest elements first, so that all are aligned to
/// their elements. Throws InvalidArgument naming the tensor if a name is repeated, reserved or not UTF-8, or
/// if the format lacks the dtype.
SafetensorsHeader place_safetensors(std::vector<SafetensorsEntry> tensors,
                                    std::map<std::string, std::string> metadata);

/// Returns all bytes before the tensors' bytes; their number is a multiple of eight. Throws InvalidArgument
/// if it exceeds the format's limit or if text is not UTF-8.
std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace lockstep
