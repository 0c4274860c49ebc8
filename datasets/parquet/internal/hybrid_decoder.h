#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// Reads numbers in Parquet's hybrid of run lengths and bit packing
/// (https://parquet.apache.org/docs/file-format/data-pages/encodings/, "RLE"), in which pages keep definition
/// levels and indices into dictionaries.
///
/// Example:
///
///     HybridDecoder decoder(page.data(), page.size(), /*width=*/7);
///     std::vector<uint32_t> indices(1024);
///     const size_t count = decoder.read(indices.data(), indices.size());
class HybridDecoder {
 public:
  /// Bytes that must be readable after the data.
  static constexpr size_t kPadding = 40;

  /// The data must outlive this object. `width` is the number of bits of a number, at most 32.
  HybridDecoder(const uint8_t* data, size_t size, int width);

  /// Reads the next `count` numbers, and returns how many there are before the end of the data or damage.
  size_t read(uint32_t* to, size_t count);

  /// As read(), for numbers of one bit: sets bit i % 64 of to[i / 64] to number i, and the bits after the
  /// last number to 0.
  size_t read_bits(uint64_t* to, size_t count);

 private:
  bool next_run();
  void read_packed(uint32_t* to, size_t count);

  const uint8_t* data_;
  const uint8_t* end_;
  int width_;
  size_t left_ = 0;         // numbers that are left in the run
  bool is_packed_ = false;  // whether the run is packed
  uint32_t repeated_ = 0;
  const uint8_t* group_ = nullptr;  // the eight numbers that hold the next one
  size_t in_group_ = 0;
};

}  // namespace lockstep
