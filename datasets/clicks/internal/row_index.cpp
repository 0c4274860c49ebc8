#include "lockstep/datasets/clicks/internal/row_index.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {
namespace {

constexpr uint64_t kRowsAChunk = 4096;
constexpr uint64_t kChunkBytes = sizeof(uint64_t) + kRowsAChunk * sizeof(uint32_t);
/// Rows have 39 separators and a label.
constexpr uint64_t kShortestRow = 40;

/// The header, as it is stored in the file. The magic differs on a machine of the other byte order.
struct Header {
  uint64_t magic = 0;
  uint64_t version = 0;
  FileVersion source;
  FileVersion rows;
  uint64_t num_rows = 0;
  int64_t num_malformed = 0;
  uint64_t text_bytes = 0;     // of first_malformed
  uint64_t body_checksum = 0;  // CRC-32 of everything after the header
  uint64_t reserved = 0;
  uint64_t checksum = 0;  // CRC-32 of the fields above
};
static_assert(sizeof(Header) == 96);

constexpr uint64_t kMagic = 0x7865646e69776f72;  // "rowindex"
constexpr uint64_t kFormatVersion = 1;

uint32_t checksum_of(uint32_t before, const void* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(before, static_cast<const Bytef*>(bytes), size));
}

uint64_t header_checksum(const Header& header) {
  return checksum_of(0, &header, offsetof(Header, checksum));
}

/// Returns the bytes of the chunks of so many rows.
uint64_t chunk_bytes(uint64_t num_rows) {
  const uint64_t num_chunks = (num_rows + kRowsAChunk - 1) / kRowsAChunk;
  return num_chunks * sizeof(uint64_t) + num_rows * sizeof(uint32_t);
}

template <typename Number>
Number number_at(const char* bytes) {
  Number number = 0;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}

}  // namespace

RowIndexWriter::RowIndexWriter(std::function<void(std::string_view)> append) : append_(std::move(append)) {
  append_(std::string(sizeof(Header), '\0'));
}

void RowIndexWriter::add(uint64_t offset, const std::string& file) {
  if (num_rows_ % kRowsAChunk == 0) {
    chunk_ = offset;
    put(&chunk_, sizeof(chunk_));
  }
  if (offset - chunk_ > UINT32_MAX)
    throw DataError(file + ": expected rows of click logs, but found 4 GiB with hardly any");
  const auto within = static_cast<uint32_t>(offset - chunk_);
  put(&within, sizeof(within));
  ++num_rows_;
}

void RowIndexWriter::put(const void* bytes, size_t size) {
  constexpr size_t kFlushBytes = size_t{1} << 20;
  buffer_.append(static_cast<const char*>(bytes), size);
  if (buffer_.size() >= kFlushBytes) flush();
}

void RowIndexWriter::flush() {
  checksum_ = checksum_of(checksum_, buffer_.data(), buffer_.size());
  append_(buffer_);
  buffer_.clear();
}

std::string RowIndexWriter::finish(const RowIndexFacts& facts) {
  put(facts.first_malformed.data(), facts.first_malformed.size());
  flush();
  Header header{.magic = kMagic,
                .version = kFormatVersion,
                .source = facts.source,
                .rows = facts.rows,
                .num_rows = num_rows_,
                .num_malformed = facts.num_malformed,
                .text_bytes = facts.first_malformed.size(),
                .body_checksum = checksum_};
  header.checksum = header_checksum(header);
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

std::optional<RowIndex> RowIndex::parse(std::string_view bytes, const FileVersion& source) {
  Header header;
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::string_view body = bytes.substr(sizeof(header));
  const bool is_index = header.magic == kMagic && header.version == kFormatVersion &&
                        header.checksum == header_checksum(header) && header.source == source;
  // The order of these keeps the sums from overflowing.
  const bool is_whole = is_index && header.num_rows <= body.size() / sizeof(uint32_t) &&
                        header.text_bytes <= body.size() && header.num_malformed >= 0 &&
                        chunk_bytes(header.num_rows) + header.text_bytes == body.size() &&
                        header.num_rows <= header.rows.size / kShortestRow + 1 &&
                        header.body_checksum == checksum_of(0, body.data(), body.size());
  if (!is_whole) return std::nullopt;
  RowIndex index;
  index.chunks_ = body.data();
  index.num_rows_ = header.num_rows;
  index.facts_ = {.source = header.source,
                  .rows = header.rows,
                  .num_malformed = header.num_malformed,
                  .first_malformed = std::string(body.substr(chunk_bytes(header.num_rows)))};
  return index;
}

uint64_t RowIndex::offset(uint64_t row) const {
  const char* chunk = chunks_ + row / kRowsAChunk * kChunkBytes;
  const char* within = chunk + sizeof(uint64_t) + row % kRowsAChunk * sizeof(uint32_t);
  return number_at<uint64_t>(chunk) + number_at<uint32_t>(within);
}

std::optional<RowIndex::Range> RowIndex::range(uint64_t first, uint64_t count) const {
  const uint64_t end = first + count;
  const Range range{.begin = offset(first), .end = end < num_rows_ ? offset(end) : facts_.rows.size};
  if (range.begin >= range.end || range.end > facts_.rows.size) return std::nullopt;
  return range;
}

}  // namespace lockstep
