#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

/// Appends numbers and texts to a byte buffer in little-endian order on any machine.
class LittleEndianWriter {
 public:
  template <std::integral Integer>
  void write(Integer value) {
    const auto bits = static_cast<uint64_t>(value);
    for (size_t i = 0; i < sizeof(Integer); ++i) bytes_.push_back(static_cast<uint8_t>(bits >> (8 * i)));
  }
  void write(double value) { write(std::bit_cast<uint64_t>(value)); }
  /// Writes the text's size in four bytes, then its bytes. Throws InvalidArgument if it has 4 GiB or more.
  void write_text(std::string_view text) {
    if (text.size() > UINT32_MAX)
      throw InvalidArgument("expected a text of less than 4 GiB, but got one of " +
                            std::to_string(text.size()) + " bytes");
    write(static_cast<uint32_t>(text.size()));
    // As bytes, which are copied at once; characters would be converted one by one.
    const auto* first = reinterpret_cast<const uint8_t*>(text.data());
    bytes_.insert(bytes_.end(), first, first + text.size());
  }

  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

/// Reads what LittleEndianWriter wrote; safe for untrusted input. Does not own the bytes.
class LittleEndianReader {
 public:
  explicit LittleEndianReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  /// Returns the next number or text. Throws InvalidArgument if too few bytes are left.
  template <std::integral Integer>
  Integer read() {
    const auto bytes = next(sizeof(Integer));
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(Integer); ++i) value |= uint64_t{bytes[i]} << (8 * i);
    return static_cast<Integer>(value);
  }
  double read_double() { return std::bit_cast<double>(read<uint64_t>()); }
  std::string read_text() {
    const auto bytes = next(read<uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// Returns the next `size` bytes as a view of the given bytes.
  std::span<const uint8_t> next(size_t size) {
    if (size > bytes_.size())
      throw InvalidArgument("expected " + std::to_string(size) + " bytes more, but got " +
                            std::to_string(bytes_.size()));
    const auto part = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return part;
  }

  size_t num_left() const { return bytes_.size(); }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace lockstep
