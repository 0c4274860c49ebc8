#include "lockstep/datasets/tokens/internal/tokenized_text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <span>
#include <system_error>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/stores/internal/data_uri.h"
#include "lockstep/datasets/text/internal/utf8.h"
#include "lockstep/datasets/tokens/internal/parquet_documents.h"
#include "lockstep/datasets/tokens/internal/text_documents.h"
#include "lockstep/datasets/tokens/internal/token_output.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Changes if the same text becomes other tokens, for instance because it is cut into other pieces.
constexpr uint64_t kCacheVersion = 1;

/// FNV-1a, whose values do not depend on the compiler as those of std::hash do.
class StableHash {
 public:
  void add(std::string_view text) {
    value_ = (value_ ^ text.size()) * kPrime;
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * kPrime;
  }
  uint64_t value() const { return value_; }

 private:
  static constexpr uint64_t kPrime = 1099511628211U;

  uint64_t value_ = 14695981039346656037U;
};

/// Returns the file's name for messages, which does not show credentials.
std::string name_of(const TokenizedText& text) {
  return is_uri(text.path) ? parse_uri(text.path).name() : text.path;
}

FileVersion version_of(const TokenizedText& text) {
  if (is_parquet_name(text.path)) return parquet_version({.path = text.path, .column = text.parquet_column});
  return OpenFile(text.path).version();
}

void visit_documents(const TokenizedText& text, const std::function<void(const TextPiece&)>& visit) {
  if (is_parquet_name(text.path)) {
    read_parquet_documents({.path = text.path, .column = text.parquet_column}, visit);
  } else {
    read_documents({.path = text.path, .json_field = text.encoding.json_field}, visit);
  }
}

uint64_t hash_of(const TokenizedText& text) {
  StableHash hash;
  hash.add(text.encoding.identity);
  hash.add(text.encoding.json_field);
  hash.add(std::to_string(text.encoding.end_of_text));
  hash.add(std::to_string(text.vocab_size));
  if (text.encoding.requires_utf8) hash.add("UTF-8");
  if (is_parquet_name(text.path)) hash.add(text.parquet_column);
  return hash.value();
}

/// Encodes a piece. Errors of the tokenizer, which does not know the file, name the place.
std::vector<uint32_t> encode_piece(const TokenizedText& text, const TextPiece& piece,
                                   const std::string& place) {
  try {
    return text.encoding.encode(piece.text);
  } catch (const DataError& error) {
    throw DataError(place + ": " + error.what());
  }
}

/// Throws DataError naming the first byte of `text` that is not valid UTF-8. `bytes_before` are those of the
/// file's text before it.
void require_utf8(const std::string& path, std::string_view text, uint64_t bytes_before) {
  const size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return;
  std::array<char, 8> byte{};
  std::snprintf(byte.data(), byte.size(), "0x%02x", static_cast<unsigned char>(text[valid]));
  throw DataError(path, "byte " + std::to_string(bytes_before + valid) + " of its text", "valid UTF-8",
                  byte.data());
}

/// Encodes the text of a file. Returns the file's version, which did not change meanwhile.
FileVersion encode_documents(const TokenizedText& text,
                             const std::function<void(std::span<const uint32_t>)>& append) {
  const FileVersion version = version_of(text);
  uint64_t bytes_before = 0;
  visit_documents(text, [&](const TextPiece& piece) {
    std::string place = name_of(text);
    if (!piece.place.empty()) place += ": " + piece.place;
    if (text.encoding.requires_utf8) require_utf8(place, piece.text, bytes_before);
    if (piece.place.empty()) bytes_before += piece.text.size();
    if (piece.line > 0) place += ": line " + std::to_string(piece.line);
    std::vector<uint32_t> tokens = encode_piece(text, piece, place);
    if (piece.ends_document) tokens.push_back(text.encoding.end_of_text);
    const auto wrong =
        std::find_if(tokens.begin(), tokens.end(), [&](uint32_t token) { return token >= text.vocab_size; });
    if (wrong != tokens.end())
      throw DataError(place, "tokens of its text",
                      "below the size of the vocabulary, " + std::to_string(text.vocab_size),
                      std::to_string(*wrong) + " from the tokenizer");
    append(tokens);
  });
  if (version_of(text) != version)
    throw DataError(name_of(text) +
                    ": expected a file that stays as it is, but it changed while it was read");
  return version;
}

std::string cache_path(const TokenizedText& text) {
  std::error_code error;
  fs::path whole = fs::canonical(text.path, error);
  if (error) whole = is_uri(text.path) ? fs::path(name_of(text)) : fs::absolute(text.path, error);
  // Files of equal names in several folders, and several tokenizers for one file, must not meet.
  StableHash hash;
  hash.add(whole.string());
  hash.add(std::to_string(hash_of(text)));
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash.value()));
  // Names of files have at most 255 bytes, and this one gets an ending while the file is written.
  constexpr size_t kMaxNameBytes = 150;
  const std::string name = whole.filename().string().substr(0, kMaxNameBytes);
  return fs::path(text.cache_folder) / (name + "-" + digits.data() + ".bin");
}

std::unique_ptr<const TokenPart> cached_tokens(const TokenizedText& text, int width) {
  const std::string path = cache_path(text);
  fs::create_directories(text.cache_folder);
  const auto notes_of = [&](const FileVersion& version) {
    return TokenHeaderNotes{version.size, static_cast<uint64_t>(version.modified_ns), hash_of(text),
                            kCacheVersion};
  };
  const FileVersion version = version_of(text);
  const auto is_ready = [&] {
    try {
      std::string header(kTokenHeaderBytes, '\0');
      const OpenFile file(path);
      if (file.read_at(0, header.data(), header.size()) != header.size()) return false;
      (void)token_layout({.path = path, .bytes = header, .file_size = file.version().size},
                         TokenFormat::kLlmC);
      return token_header_notes(header) == notes_of(version);
    } catch (const DataError&) {
      return false;  // not there, or no cache
    }
  };
  const auto say = [&](const std::string& message) {
    if (text.on_message) text.on_message(name_of(text) + ": " + message);
  };
  build_cache_file(path,
                   {.is_ready = is_ready,
                    .write =
                        [&](NewFile& file) {
                          say("turning its text into tokens, once");
                          TokenOutput output(file, name_of(text), width);
                          output.finish(notes_of(encode_documents(
                              text, [&](std::span<const uint32_t> tokens) { output.append(tokens); })));
                        },
                    .on_wait = [&] { say("waiting for another process to turn its text into tokens"); }});
  return std::make_unique<const TokenPart>(path, TokenFormat::kLlmC);
}

std::unique_ptr<const TokenPart> tokens_in_memory(const TokenizedText& text, int width) {
  std::string bytes;
  encode_documents(text, [&](std::span<const uint32_t> tokens) {
    if (bytes.size() + tokens.size() * static_cast<size_t>(width) > text.max_bytes_in_memory)
      throw DataError(name_of(text) + ": expected tokens of at most " +
                      std::to_string(text.max_bytes_in_memory) +
                      " bytes of memory for all text files; name a cache folder for more");
    append_tokens(bytes, tokens, width);
  });
  return std::make_unique<const TokenPart>(name_of(text), std::move(bytes), width);
}

}  // namespace

std::unique_ptr<const TokenPart> tokenize_text(const TokenizedText& text) {
  const int width = fits_two_bytes(text.vocab_size) ? 2 : 4;
  return text.cache_folder.empty() ? tokens_in_memory(text, width) : cached_tokens(text, width);
}

}  // namespace lockstep
