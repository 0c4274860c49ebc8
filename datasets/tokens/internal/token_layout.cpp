#include "lockstep/datasets/tokens/internal/token_layout.h"

#include <bit>
#include <cstring>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "files are mapped as they are");

/// A kind of header.
struct TokenHeader {
  int32_t magic;
  int32_t version;
  int bytes_per_token;
};
constexpr TokenHeader kTwoBytes{.magic = 20240520, .version = 1, .bytes_per_token = 2};
constexpr TokenHeader kFourBytes{.magic = 20240801, .version = 7, .bytes_per_token = 4};

constexpr size_t kNotesAt = 3 * sizeof(int32_t);

int32_t number_at(std::string_view bytes, size_t index) {
  int32_t number = 0;
  std::memcpy(&number, bytes.data() + index * sizeof(number), sizeof(number));
  return number;
}

const TokenHeader* header_of(std::string_view bytes) {
  if (bytes.size() < sizeof(int32_t)) return nullptr;
  for (const TokenHeader* header : {&kTwoBytes, &kFourBytes})
    if (number_at(bytes, 0) == header->magic) return header;
  return nullptr;
}

std::string bytes_text(uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

TokenLayout layout_after_header(const TokenFileStart& start) {
  const std::string& path = start.path;
  if (start.bytes.size() < kTokenHeaderBytes)
    throw DataError(path, "file size", "a header of " + bytes_text(kTokenHeaderBytes),
                    bytes_text(start.file_size));
  const TokenHeader* header = header_of(start.bytes);
  if (header == nullptr)
    throw DataError(path, "magic number of the header",
                    std::to_string(kTwoBytes.magic) + " or " + std::to_string(kFourBytes.magic),
                    std::to_string(number_at(start.bytes, 0)));
  const int32_t version = number_at(start.bytes, 1);
  if (version != header->version)
    throw DataError(path, "version in the header with magic number " + std::to_string(header->magic),
                    std::to_string(header->version), std::to_string(version));
  const int32_t count = number_at(start.bytes, 2);
  if (count < 1) throw DataError(path, "number of tokens in the header", "1 or more", std::to_string(count));
  const TokenLayout layout{.first_byte = kTokenHeaderBytes,
                           .bytes_per_token = header->bytes_per_token,
                           .num_tokens = static_cast<uint64_t>(count)};
  const uint64_t expected =
      kTokenHeaderBytes + layout.num_tokens * static_cast<uint64_t>(layout.bytes_per_token);
  if (start.file_size != expected)
    throw DataError(path, "file size",
                    bytes_text(expected) + " for the " + std::to_string(count) + " tokens of its header",
                    bytes_text(start.file_size));
  return layout;
}

}  // namespace

TokenLayout token_layout(const TokenFileStart& start, TokenFormat format) {
  if (start.file_size == 0) throw DataError(start.path + ": expected tokens, but the file is empty");
  if (format == TokenFormat::kLlmC || (format == TokenFormat::kAuto && header_of(start.bytes) != nullptr))
    return layout_after_header(start);
  const int bytes_per_token = format == TokenFormat::kUint32 ? 4 : 2;
  const auto width = static_cast<uint64_t>(bytes_per_token);
  if (start.file_size % width != 0)
    throw DataError(start.path, "file size",
                    "a multiple of " + bytes_text(width) + ", as each token has " + std::to_string(width),
                    bytes_text(start.file_size));
  return {.bytes_per_token = bytes_per_token, .num_tokens = start.file_size / width};
}

bool fits_two_bytes(uint32_t vocab_size) {
  return vocab_size <= uint32_t{UINT16_MAX} + 1;
}

std::string token_header(const TokenLayout& layout, const TokenHeaderNotes& notes) {
  const TokenHeader& kind = layout.bytes_per_token == 2 ? kTwoBytes : kFourBytes;
  std::string header(kTokenHeaderBytes, '\0');
  const std::array numbers{kind.magic, kind.version, static_cast<int32_t>(layout.num_tokens)};
  std::memcpy(header.data(), numbers.data(), sizeof(numbers));
  std::memcpy(header.data() + kNotesAt, notes.data(), sizeof(notes));
  return header;
}

TokenHeaderNotes token_header_notes(std::string_view header) {
  TokenHeaderNotes notes{};
  std::memcpy(notes.data(), header.data() + kNotesAt, sizeof(notes));
  return notes;
}

}  // namespace lockstep
