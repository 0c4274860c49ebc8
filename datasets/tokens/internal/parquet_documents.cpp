#include "lockstep/datasets/tokens/internal/parquet_documents.h"

#include <string_view>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/parquet_file.h"
#include "lockstep/datasets/stores/internal/data_uri.h"

namespace lockstep {

namespace {

ParquetFile open_documents(const ParquetDocuments& documents) {
  return ParquetFile({.path = documents.path, .columns = {documents.column}, .null_lists_are_empty = true});
}

}  // namespace

bool is_parquet_name(const std::string& path) {
  const std::string name = is_uri(path) ? parse_uri(path).name() : path;
  return name.ends_with(".parquet") || name.ends_with(".pq");
}

void read_parquet_documents(const ParquetDocuments& documents,
                            const std::function<void(const TextPiece&)>& visit) {
  const ParquetFile file = open_documents(documents);
  const std::string column = "column '" + documents.column + "'";
  if (file.columns().front().shape != ParquetShape::kBytes)
    throw DataError(file.path(), column, "text", "another type; ParquetTokens reads lists of ids");
  bool has_text = false;
  for (int group = 0; group < file.num_row_groups(); ++group) {
    const ParquetValues texts = file.read_row_group(group).front();
    const auto* bytes = reinterpret_cast<const char*>(texts.values.const_data_ptr<uint8_t>());
    const auto* offsets = texts.offsets.const_data_ptr<int64_t>();
    for (int64_t row = 0; row + 1 < texts.offsets.numel(); ++row) {
      const auto size = static_cast<size_t>(offsets[row + 1] - offsets[row]);
      if (size == 0) continue;
      has_text = true;
      visit({.text = std::string_view(bytes + offsets[row], size),
             .place = "row group " + std::to_string(group) + ": row " + std::to_string(row)});
    }
  }
  if (!has_text) throw DataError(file.path(), column, "text", "none");
}

FileVersion parquet_version(const ParquetDocuments& documents) {
  const std::string path = without_file_scheme(documents.path);
  if (!is_uri(path)) return OpenFile(path).version();
  constexpr int kHexadecimal = 16;
  return {.size = std::stoull(open_documents(documents).identity(), nullptr, kHexadecimal)};
}

}  // namespace lockstep
