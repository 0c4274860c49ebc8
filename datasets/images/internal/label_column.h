#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/datasets/parquet/parquet_dataset.h"

namespace lockstep {

/// The classes of a column of labels in Parquet files: whole numbers from 0 on, or names.
class LabelColumn {
 public:
  /// `classes` are the names of the classes in their order. Throws DataError naming `path` and the column if
  /// that holds neither whole numbers nor strings.
  LabelColumn(const std::string& path, const ParquetColumn& column, std::vector<std::string> classes);

  const std::vector<std::string>& classes() const { return classes_; }
  /// Returns the class of each row, an index into classes(), or -1 if a label is none of them.
  std::vector<int64_t> classes_of(const ParquetValues& labels) const;
  /// Returns a row's label for messages.
  std::string text_of(const ParquetValues& labels, size_t row) const;
  /// Returns the labels that classes_of() knows, for messages.
  std::string expected() const;

 private:
  bool is_text_;
  std::vector<std::string> classes_;
  std::unordered_map<std::string, int64_t> indices_;  // of names
};

/// Reads the column of labels, the only one of `options`, and returns the classes: the sorted names, or the
/// numbers up to the largest. Throws as ParquetDataset and LabelColumn(), and DataError naming the file, the
/// row group and the row for a negative number or an empty name unless the options skip what is unreadable,
/// and if there are more than a million classes.
std::vector<std::string> find_classes(const ParquetDatasetOptions& options);

/// Returns the file, the row group and the row, for messages.
std::string row_name(const ParquetDataset& rows, size_t index);

}  // namespace lockstep
