#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

enum class TextKind { kPlain, kJsonLines };

/// Returns kJsonLines for names that end with .jsonl, .ndjson or .json, also with .gz or .zst after it.
TextKind text_kind_of(const std::string& path);

struct TextDocuments {
  std::string path;
  std::string json_field = "text";
  size_t piece_bytes = size_t{16} << 20;
  size_t max_line_bytes = size_t{256} << 20;
};

/// A document, or if it is long, a piece of one.
struct TextPiece {
  std::string_view text;
  bool ends_document = true;
  uint64_t line = 0;    ///< of JSON lines, counted from 1; 0 for others
  std::string place{};  ///< of Parquet files: the row group and the row
};

/// Reads a file, which may be compressed, and calls `visit` for each document. A plain text is one document.
/// If it is longer than `piece_bytes`, it comes in pieces. They are cut after a new line between two words,
/// where byte-level tokenizers such as GPT-2's and Llama 3's cut, too; if a piece has none, between two
/// characters. Each line of a file of JSON lines is a document. Empty lines and documents without text are
/// left out.
///
/// Throws DataError naming the file, and for JSON lines the line, if it cannot be read, is damaged, has no
/// text, or a line lacks the field, is broken, or is longer than `max_line_bytes`.
void read_documents(const TextDocuments& documents, const std::function<void(const TextPiece&)>& visit);

}  // namespace lockstep
