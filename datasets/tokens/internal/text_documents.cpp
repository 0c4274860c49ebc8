#include "lockstep/datasets/tokens/internal/text_documents.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/byte_source.h"
#include "lockstep/datasets/text/internal/utf8.h"
#include "lockstep/datasets/tokens/internal/json_text.h"

namespace lockstep {
namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/// Returns whether the character is whole and no white space.
bool is_of_word(std::string_view character) {
  return valid_utf8_prefix(character) == character.size() && !is_white_space(first_character(character));
}

/// Returns where to cut a piece of text that continues: see read_documents(). At least one byte is left, so
/// that the last piece of a document is not empty.
size_t cut_place(std::string_view text) {
  for (size_t i = text.rfind('\n', text.size() - 2); i != std::string_view::npos && i > 0;
       i = text.rfind('\n', i - 1)) {
    const std::string_view next = text.substr(i + 1, utf8_length(text[i + 1]));
    if (is_of_word(last_character(text.substr(0, i))) && is_of_word(next)) return i + 1;
  }
  // The bytes of a UTF-8 character but its first begin with the bits 10. It has at most 4.
  constexpr size_t kMaxBytes = 4;
  for (size_t i = text.size() - 1; i > 0 && i + kMaxBytes >= text.size(); --i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return i;
  return text.size() - 1;
}

/// The bytes of a file, of which those not yet used are kept.
class TextBuffer {
 public:
  explicit TextBuffer(const std::string& path) : source_(open_byte_source(path)) {}

  std::string_view text() const { return std::string_view(bytes_).substr(begin_); }
  bool is_at_end() const { return is_at_end_; }
  void drop(size_t count) { begin_ += count; }
  /// Reads until there are `size` bytes or the file ends.
  void fill(size_t size) {
    constexpr size_t kAtOnce = size_t{1} << 20;
    bytes_.erase(0, begin_);
    begin_ = 0;
    while (bytes_.size() < size && !is_at_end_) {
      const size_t before = bytes_.size();
      bytes_.resize(before + std::min(kAtOnce, size - before));
      const size_t got = source_->read(bytes_.data() + before, bytes_.size() - before);
      is_at_end_ = before + got < bytes_.size();
      bytes_.resize(before + got);
    }
  }

 private:
  std::unique_ptr<ByteSource> source_;
  std::string bytes_;
  size_t begin_ = 0;
  bool is_at_end_ = false;
};

void read_plain(const TextDocuments& documents, TextBuffer& buffer,
                const std::function<void(const TextPiece&)>& visit) {
  // One byte more tells whether the text continues.
  for (buffer.fill(documents.piece_bytes + 1); !buffer.text().empty();
       buffer.fill(documents.piece_bytes + 1)) {
    const auto text = buffer.text();
    const bool is_last = text.size() <= documents.piece_bytes;
    const size_t size = is_last ? text.size() : cut_place(text);
    visit({.text = text.substr(0, size), .ends_document = is_last});
    buffer.drop(size);
  }
}

void read_lines(const TextDocuments& documents, TextBuffer& buffer,
                const std::function<void(const TextPiece&)>& visit) {
  const std::string& path = documents.path;
  std::string document;
  uint64_t number = 0;
  for (size_t wanted = documents.piece_bytes;;) {
    const auto text = buffer.text();
    size_t size = text.find('\n');
    if (std::min(size, text.size()) > documents.max_line_bytes)
      throw DataError(path + ": line " + std::to_string(number + 1) + ": expected at most " +
                      std::to_string(documents.max_line_bytes) + " bytes in a line");
    if (size == std::string_view::npos && !buffer.is_at_end()) {
      if (text.size() >= wanted) wanted *= 2;
      buffer.fill(wanted);
      continue;
    }
    if (text.empty()) return;
    ++number;
    size = std::min(size, text.size());
    const auto line = text.substr(0, size);
    if (!std::all_of(line.begin(), line.end(), is_space)) {
      if (const auto problem = parse_json_text(line, documents.json_field, document))
        throw DataError(path + ": line " + std::to_string(number) + ": " + *problem);
      if (!document.empty()) visit({.text = document, .line = number});
    }
    buffer.drop(std::min(size + 1, text.size()));
  }
}

}  // namespace

TextKind text_kind_of(const std::string& path) {
  std::string_view name = path;
  for (const std::string_view compressed : {".gz", ".zst"})
    if (name.ends_with(compressed)) name.remove_suffix(compressed.size());
  const bool is_json = name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json");
  return is_json ? TextKind::kJsonLines : TextKind::kPlain;
}

void read_documents(const TextDocuments& documents, const std::function<void(const TextPiece&)>& visit) {
  TextBuffer buffer(documents.path);
  bool has_text = false;
  const auto visit_text = [&](const TextPiece& piece) {
    has_text = true;
    visit(piece);
  };
  const bool is_plain = text_kind_of(documents.path) == TextKind::kPlain;
  (is_plain ? read_plain : read_lines)(documents, buffer, visit_text);
  if (!has_text) throw DataError(documents.path + ": expected text, but the file has none");
}

}  // namespace lockstep
