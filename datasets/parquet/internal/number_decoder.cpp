#include "lockstep/datasets/parquet/internal/number_decoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <arrow/io/memory.h>
#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "lockstep/datasets/parquet/internal/hybrid_decoder.h"

namespace lockstep {

namespace {

static_assert(HybridDecoder::kPadding <= kPayloadPadding);

/// Rows that are decoded at a time: their indices and levels stay in the first cache.
constexpr size_t kBlock = 1024;
/// Definition levels are bits: whether a row has a value.
constexpr size_t kLevelsOfWord = 64;

using parquet::Encoding;
using parquet::ParquetException;

bool is_dictionary(Encoding::type encoding) {
  return encoding == Encoding::RLE_DICTIONARY || encoding == Encoding::PLAIN_DICTIONARY;
}

/// Returns the bits of a number in a column's type.
template <typename Bits>
Bits bits_of(double number, at::ScalarType type) {
  if (type == at::kFloat) return static_cast<Bits>(std::bit_cast<uint32_t>(static_cast<float>(number)));
  if (type == at::kDouble) return static_cast<Bits>(std::bit_cast<uint64_t>(number));
  return static_cast<Bits>(static_cast<int64_t>(number));
}

/// Returns the most bytes that a page may have. Damaged ones may say any number.
int64_t most_bytes_of(const parquet::ColumnChunkMetaData& chunk) {
  constexpr int64_t kMostInexact = int64_t{1} << 24;  // not all writers count alike
  return std::clamp(chunk.total_uncompressed_size(), int64_t{0}, int64_t{1} << 40) + kMostInexact;
}

#if defined(__SSE2__)
void put_past_cache(uint32_t* to, uint32_t bits) {
  _mm_stream_si32(reinterpret_cast<int*>(to), static_cast<int>(bits));
}
void put_past_cache(uint64_t* to, uint64_t bits) {
  _mm_stream_si64(reinterpret_cast<long long*>(to), static_cast<long long>(bits));
}
void end_past_cache() {
  _mm_sfence();
}
#else
template <typename Bits>
void put_past_cache(Bits* to, Bits bits) {
  *to = bits;
}
void end_past_cache() {}
#endif

/// Writes `value(row)` of the rows in their order. A row group is larger than the cache, and is read by
/// batches that come later: written past the cache, it leaves the cache to what value() reads.
template <typename Bits, typename Value>
void put_in_order(Bits* to, c10::ArrayRef<uint32_t> order, Value value) {
  for (const uint32_t row : order) put_past_cache(to++, value(row));
  end_past_cache();
}

/// Returns whether all indices are below `size`, at most 2^31. Compilers make vectors of the inner loop.
bool are_below(uint32_t size, const uint32_t* indices, size_t count) {
  const auto sign_if_not = [size](uint32_t index) { return (size - 1 - index) | index; };
  constexpr size_t kLanes = 16;
  std::array<uint32_t, kLanes> signs{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) signs[lane] |= sign_if_not(indices[i + lane]);
  for (; i < count; ++i) signs[0] |= sign_if_not(indices[i]);
  return std::ranges::none_of(signs, [](uint32_t sign) { return sign >> 31 != 0; });
}

/// Decodes the pages of a chunk whose values are as wide as Bits.
template <typename Bits>
class ChunkDecoder {
 public:
  /// `indices` may be null. Otherwise rows will be put into another order, and only indices are noted there
  /// while all values are in one dictionary of at most 65,535. Looking values up in that order touches less
  /// memory than reordering the values.
  ChunkDecoder(PagePayload& payload, const ParquetColumn& column, const parquet::ColumnDescriptor& descriptor,
               const parquet::ColumnChunkMetaData& chunk, const NumberDecoder::Options& options, Bits* to,
               uint16_t* indices)
      : payload_(payload),
        options_(options),
        has_levels_(descriptor.max_definition_level() > 0),
        most_bytes_(most_bytes_of(chunk)),
        fill_(bits_of<Bits>(options.fill.value_or(0), column.type)),
        to_(to),
        short_indices_(indices),
        notes_indices_(indices != nullptr) {}

  /// Returns how many rows are null. The values of all rows are in `to` afterwards, unless notes_indices().
  int64_t decode(parquet::PageReader& pages) {
    while (const auto page = pages.NextPage()) {
      if (page->type() == parquet::PageType::DICTIONARY_PAGE) {
        take_dictionary(static_cast<const parquet::DictionaryPage&>(*page));
      } else if (page->type() == parquet::PageType::DATA_PAGE ||
                 page->type() == parquet::PageType::DATA_PAGE_V2) {
        take_data(static_cast<const parquet::DataPage&>(*page));
      }
    }
    if (row_ != options_.rows)
      throw ParquetException("expected values of " + std::to_string(options_.rows) + " rows, but got " +
                             std::to_string(row_));
    return nulls_;
  }

  /// Whether the indices of all rows are in `indices`, and their values in dictionary().
  bool notes_indices() const { return notes_indices_; }
  const Bits* dictionary() const { return dictionary_.data(); }

 private:
  void take_dictionary(const parquet::DictionaryPage& page) {
    if (page.encoding() != Encoding::PLAIN && page.encoding() != Encoding::PLAIN_DICTIONARY)
      throw ParquetException("expected a dictionary of plain values");
    const int64_t count = page.num_values();
    if (count < 0 || count > most_bytes_ / static_cast<int64_t>(sizeof(Bits)))
      throw ParquetException("expected a dictionary of at most " + std::to_string(most_bytes_) +
                             " bytes, but got " + std::to_string(count) + " values");
    if (row_ > 0 || count > std::numeric_limits<uint16_t>::max()) look_up_noted();
    const PaddedBytes values = payload_.of_dictionary(page, count * static_cast<int64_t>(sizeof(Bits)));
    dictionary_.resize(static_cast<size_t>(count) + 1);
    if (count > 0) std::memcpy(dictionary_.data(), values.data, values.size);
    dictionary_.back() = fill_;
  }

  void take_data(const parquet::DataPage& page) {
    const int64_t count = page.num_values();
    if (count < 0 || count > options_.rows - row_)
      throw ParquetException("expected values of at most " + std::to_string(options_.rows) +
                             " rows, but got " + std::to_string(row_ + std::max<int64_t>(count, 0)));
    const PagePayload::Parts parts = payload_.of_data(page, has_levels_);
    HybridDecoder levels(parts.levels.data, parts.levels.size, 1);
    if (is_dictionary(page.encoding())) {
      take_indices(levels, parts.values, count);
    } else if (page.encoding() == Encoding::PLAIN) {
      take_plain(levels, parts.values, count);
    } else {
      throw UnknownEncoding("expected plain values or a dictionary, but got encoding " +
                            parquet::EncodingToString(page.encoding()));
    }
  }

  /// Reads the levels of a block's rows, and returns how many of them have a value.
  size_t read_levels(HybridDecoder& levels, size_t rows) {
    if (!has_levels_) return rows;
    if (levels.read_bits(levels_.data(), rows) != rows)
      throw ParquetException("expected more definition levels, but the page has ended");
    size_t values = 0;
    for (size_t i = 0; i < rows; i += kLevelsOfWord)
      values += static_cast<size_t>(std::popcount(levels_[i / kLevelsOfWord]));
    nulls_ += static_cast<int64_t>(rows - values);
    return values;
  }

  void take_indices(HybridDecoder& levels, const PaddedBytes& bytes, int64_t count) {
    if (dictionary_.empty()) throw ParquetException("expected a dictionary before its indices");
    const bool is_empty = bytes.size == 0;
    const int width = is_empty ? 0 : *bytes.data;
    if (width > 32)
      throw ParquetException("expected indices of at most 32 bits, but got " + std::to_string(width));
    HybridDecoder indices(bytes.data + !is_empty, is_empty ? 0 : bytes.size - 1, width);
    const auto size = static_cast<uint32_t>(dictionary_.size() - 1);
    while (count > 0) {
      const size_t rows = std::min(kBlock, static_cast<size_t>(count));
      const size_t values = read_levels(levels, rows);
      if (indices.read(indices_.data(), values) != values)
        throw ParquetException("expected more indices, but the page has ended");
      if (!are_below(size, indices_.data(), values))
        throw ParquetException("expected indices below " + std::to_string(size) +
                               ", the number of values in the dictionary");
      indices_[values] = 0;  // put() reads it
      if (notes_indices_) {
        // Index `size` is the fill, which follows the dictionary's values.
        put(short_indices_, rows, values, static_cast<uint16_t>(size),
            [&](size_t i) { return static_cast<uint16_t>(indices_[i]); });
      } else {
        const Bits* const dictionary = dictionary_.data();
        put(to_, rows, values, fill_, [&](size_t i) { return dictionary[indices_[i]]; });
      }
      count -= static_cast<int64_t>(rows);
    }
  }

  /// Notes values instead of their indices from now on.
  void look_up_noted() {
    if (!notes_indices_) return;
    notes_indices_ = false;
    for (int64_t i = 0; i < row_; ++i) to_[i] = dictionary_[short_indices_[i]];
  }

  void take_plain(HybridDecoder& levels, PaddedBytes bytes, int64_t count) {
    look_up_noted();
    while (count > 0) {
      const size_t rows = std::min(kBlock, static_cast<size_t>(count));
      const size_t values = read_levels(levels, rows);
      if (bytes.size < values * sizeof(Bits))
        throw ParquetException("expected more values, but the page has ended");
      const auto value = [&bytes](size_t i) {
        Bits bits;
        std::memcpy(&bits, bytes.data + i * sizeof bits, sizeof bits);
        return bits;
      };
      put(to_, rows, values, fill_, value);
      bytes.data += values * sizeof(Bits);
      bytes.size -= values * sizeof(Bits);
      count -= static_cast<int64_t>(rows);
    }
  }

  /// Writes the next rows: value(0) to value(values - 1) to those that have one, and `fill` to the others.
  /// value(values) is read, and not used.
  template <typename To, typename Value>
  void put(To* column, size_t rows, size_t values, To fill, Value value) {
    To* to = column + row_;
    row_ += static_cast<int64_t>(rows);
    if (values == rows) return put_all(to, rows, value);
    size_t next = 0;
    for (size_t begin = 0; begin < rows; begin += kLevelsOfWord, to += kLevelsOfWord) {
      uint64_t levels = levels_[begin / kLevelsOfWord];
      if (levels == ~uint64_t{0}) {
        put_all(to, kLevelsOfWord, [&](size_t i) { return value(next + i); });
        next += kLevelsOfWord;
        continue;
      }
      // Nulls are often random, so there is no branch.
      const size_t end = std::min(kLevelsOfWord, rows - begin);
      for (size_t i = 0; i < end; ++i, levels >>= 1) {
        const To has_value = static_cast<To>(-static_cast<To>(levels & 1));
        to[i] = static_cast<To>((value(next) & has_value) | (fill & ~has_value));
        next += levels & 1;
      }
    }
  }

  template <typename To, typename Value>
  static void put_all(To* to, size_t rows, Value value) {
    constexpr size_t kLanes = 8;  // compilers make vectors of them, if they can
    size_t i = 0;
    for (; i + kLanes <= rows; i += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane) to[i + lane] = value(i + lane);
    for (; i < rows; ++i) to[i] = value(i);
  }

  PagePayload& payload_;
  const NumberDecoder::Options& options_;
  const bool has_levels_;
  const int64_t most_bytes_;
  const Bits fill_;
  Bits* const to_;
  uint16_t* const short_indices_;
  bool notes_indices_;
  int64_t row_ = 0;  // the next one
  int64_t nulls_ = 0;
  std::vector<Bits> dictionary_;  // with an entry more, which is the fill; empty: there is none
  std::array<uint64_t, kBlock / kLevelsOfWord> levels_;
  std::array<uint32_t, kBlock + 1> indices_;
};

bool is_as_stored(const ParquetColumn& column, const parquet::ColumnDescriptor& descriptor) {
  const auto logical = descriptor.logical_type();
  const bool is_plain = !logical || logical->is_none() || !logical->is_valid();
  const auto is_signed = [&](int bits) {
    if (is_plain) return true;
    if (!logical->is_int()) return false;
    const auto& integer = static_cast<const parquet::IntLogicalType&>(*logical);
    return integer.is_signed() && integer.bit_width() == bits;
  };
  switch (descriptor.physical_type()) {
    case parquet::Type::INT32:
      return column.type == at::kInt && (is_signed(32) || logical->is_date());
    case parquet::Type::INT64:
      return column.type == at::kLong && is_signed(64);
    case parquet::Type::FLOAT:
      return column.type == at::kFloat && is_plain;
    case parquet::Type::DOUBLE:
      return column.type == at::kDouble && is_plain;
    default:
      return false;
  }
}

}  // namespace

bool can_decode_numbers(const ParquetColumn& column, const parquet::ColumnDescriptor& descriptor,
                        const parquet::ColumnChunkMetaData& chunk) {
  if (column.shape != ParquetShape::kNumber || descriptor.max_repetition_level() > 0 ||
      descriptor.max_definition_level() > 1 || chunk.crypto_metadata() || !is_as_stored(column, descriptor))
    return false;
  const std::vector<Encoding::type>& encodings = chunk.encodings();
  return std::all_of(encodings.begin(), encodings.end(), [](Encoding::type encoding) {
    // Some writers list BIT_PACKED for levels that no page has.
    return encoding == Encoding::PLAIN || encoding == Encoding::RLE || encoding == Encoding::BIT_PACKED ||
           is_dictionary(encoding);
  });
}

std::shared_ptr<arrow::Buffer> NumberDecoder::allocated(int64_t bytes) const {
  auto buffer = arrow::AllocateBuffer(bytes, pool_);
  if (!buffer.ok()) throw ParquetException(buffer.status().message());
  return std::move(buffer).ValueUnsafe();
}

NumberDecoder::Numbers NumberDecoder::decode(const ParquetColumn& column,
                                             const parquet::ColumnDescriptor& descriptor,
                                             const parquet::ColumnChunkMetaData& chunk,
                                             const std::shared_ptr<arrow::Buffer>& bytes,
                                             const Options& options) {
  // The reader is told that nothing is compressed, so that it returns pages as they are.
  const auto pages = parquet::PageReader::Open(std::make_shared<arrow::io::BufferReader>(bytes),
                                               chunk.num_values(), arrow::Compression::UNCOMPRESSED,
                                               properties_, descriptor, options.is_always_compressed);
  if (chunk.num_values() != options.rows)
    throw ParquetException("expected values of " + std::to_string(options.rows) +
                           " rows, but the metadata says " + std::to_string(chunk.num_values()));
  if (options.rows == 0) return {.values = at::empty({0}, column.type)};
  payload_.begin(chunk.compression(), most_bytes_of(chunk));
  int64_t size = 0;
  if (__builtin_mul_overflow(options.rows, static_cast<int64_t>(c10::elementSize(column.type)), &size))
    throw ParquetException("expected values that fit into memory, but got " + std::to_string(options.rows));
  const std::shared_ptr<arrow::Buffer> result = allocated(size);
  const auto make_room = [this](std::shared_ptr<arrow::Buffer>& buffer, int64_t bytes) {
    if (!buffer || buffer->size() < bytes) buffer = allocated(bytes);
    return buffer->mutable_data();
  };
  const auto decode_into = [&]<typename Bits>(Bits* to) {
    if (options.order.empty())
      return ChunkDecoder(payload_, column, descriptor, chunk, options, to, nullptr).decode(*pages);
    // Values, or their indices, are first decoded into memory that stays in the cache: to write each to its
    // place at once takes longer, as every write would wait for another line of memory.
    auto* const in_order = reinterpret_cast<Bits*>(make_room(in_order_, size));
    auto* const indices = reinterpret_cast<uint16_t*>(make_room(indices_, options.rows * 2));
    ChunkDecoder decoder(payload_, column, descriptor, chunk, options, in_order, indices);
    const int64_t nulls = decoder.decode(*pages);
    if (decoder.notes_indices()) {
      const Bits* const dictionary = decoder.dictionary();
      put_in_order(to, options.order, [&](uint32_t row) { return dictionary[indices[row]]; });
    } else {
      put_in_order(to, options.order, [&](uint32_t row) { return in_order[row]; });
    }
    return nulls;
  };
  const int64_t nulls = c10::elementSize(column.type) == 4
                            ? decode_into(reinterpret_cast<uint32_t*>(result->mutable_data()))
                            : decode_into(reinterpret_cast<uint64_t*>(result->mutable_data()));
  return {.values = at::from_blob(
              result->mutable_data(), {options.rows}, [result](void*) {}, column.type),
          .nulls = nulls};
}

}  // namespace lockstep
