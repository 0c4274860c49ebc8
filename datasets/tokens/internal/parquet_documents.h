#pragma once

#include <functional>
#include <string>

#include "lockstep/datasets/files/internal/open_file.h"
#include "lockstep/datasets/tokens/internal/text_documents.h"

namespace lockstep {

/// A column of text in a Parquet file, of which each row is a document.
struct ParquetDocuments {
  std::string path;  ///< or a URI
  std::string column = "text";
};

/// Returns whether a name ends with .parquet or .pq.
bool is_parquet_name(const std::string& path);

/// Calls `visit` for each document, in the order of the rows. Nulls and empty texts are left out. Holds one
/// row group at a time. Throws DataError as ParquetFile(), and naming the file and the column if that holds
/// no strings, or no text at all.
void read_parquet_documents(const ParquetDocuments& documents,
                            const std::function<void(const TextPiece&)>& visit);

/// Returns a version that differs if the file has changed; in an object store, if its metadata have. Throws
/// DataError as OpenFile and ParquetFile().
FileVersion parquet_version(const ParquetDocuments& documents);

}  // namespace lockstep
