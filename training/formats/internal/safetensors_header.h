#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The header of a .safetensors file, after the format's description at
// https://huggingface.co/docs/safetensors: 8 bytes with the length of the JSON, little-endian, the JSON, and
// the tensors' bytes in row-major order, without a gap.

namespace lockstep {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< in the format's own words, such as F32
  std::vector<int64_t> shape;
  uint64_t begin = 0;  ///< of the tensor's bytes, counted from the header's end
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

constexpr size_t kSafetensorsLengthBytes = 8;
constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  ///< the format's own limit

/// Bytes of one element; none for a dtype that LibTorch does not have.
std::optional<uint64_t> safetensors_element_size(std::string_view dtype);

/// The length of the JSON after the first eight bytes, `length`, of `file`. Throws CheckpointError where it
/// goes beyond the file's end or the format's limit.
uint64_t read_safetensors_length(const unsigned char* length, uint64_t file_size, const std::string& file);

/// Reads the JSON of a header. `data_size` is the number of bytes after it. Whatever `json` holds, the result
/// describes tensors whose bytes fill these exactly, and is no larger than a small multiple of `json`. Throws
/// CheckpointError naming `file`, and the tensor, for anything else.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_size,
                                           const std::string& file);

/// Places the tensors one after the other, those with the largest elements first, so that all are aligned to
/// their elements; each `begin` and `end` is set. Throws InvalidArgument naming the tensor for a name that
/// two have, that is reserved or no UTF-8, and for a dtype that the format lacks.
SafetensorsHeader place_safetensors(std::vector<SafetensorsEntry> tensors,
                                    std::map<std::string, std::string> metadata);

/// All bytes before the tensors', a multiple of eight. Throws InvalidArgument where they exceed the format's
/// limit or text is no UTF-8.
std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace lockstep
