#include "lockstep/datasets/parquet/internal/dataset_files.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/parallel_blocks.h"

namespace lockstep {

namespace {

/// Opening waits for stores and disks most of the time, so it does not depend on the number of cores.
constexpr int64_t kMostOpening = 16;

std::vector<std::string> names_of(const ParquetFile& file) {
  std::vector<std::string> names;
  for (const ParquetColumn& column : file.columns()) names.push_back(column.name);
  return names;
}

/// Opens files as the options say.
class Opener {
 public:
  Opener(const ParquetDatasetOptions& options, const std::shared_ptr<ReadTimes>& times)
      : options_(options), times_(times) {}

  ParquetFile open(const std::string& path, const std::vector<std::string>& columns) const {
    return ParquetFile({.path = path,
                        .columns = columns,
                        .null_fill = options_.null_fill,
                        .column_null_fills = options_.column_null_fills,
                        .null_lists_are_empty = options_.null_lists_are_empty,
                        .store_attempts = options_.store_attempts,
                        .times = times_});
  }

  /// Opens a file with the columns of the first one.
  DatasetFile open_like(const ParquetFile& first, const std::string& path) const {
    const std::vector<std::string> names = names_of(first);
    std::optional<DatasetFile> opened;
    if (options_.columns.empty()) opened = open_all_columns(names, path);
    if (!opened) {
      if (options_.columns.empty()) check_no_more_columns(first, path);
      opened = DatasetFile{open(path, names)};
    }
    check_columns(first, *opened);
    return std::move(*opened);
  }

 private:
  /// Opens a file with all of its columns. Returns nothing if they are not those of these names, or if a rule
  /// for nulls does not fit one of them.
  std::optional<DatasetFile> open_all_columns(const std::vector<std::string>& names,
                                              const std::string& path) const {
    std::optional<ParquetFile> file;
    try {
      file = open(path, {});
    } catch (const std::invalid_argument&) {
      return std::nullopt;
    }
    const std::vector<std::string> of_file = names_of(*file);
    if (of_file == names) return DatasetFile{std::move(*file)};
    if (of_file.size() != names.size()) return std::nullopt;
    std::vector<size_t> places;
    for (const std::string& name : names) {
      const auto found = std::find(of_file.begin(), of_file.end(), name);
      if (found == of_file.end()) return std::nullopt;
      places.push_back(static_cast<size_t>(found - of_file.begin()));
    }
    return DatasetFile{std::move(*file), std::move(places)};
  }

  /// Throws if the file has a column that the first one does not have.
  void check_no_more_columns(const ParquetFile& first, const std::string& path) const {
    const ParquetFile file({.path = path, .store_attempts = options_.store_attempts});
    const std::vector<std::string> names = names_of(first);
    for (const std::string& name : names_of(file))
      if (std::find(names.begin(), names.end(), name) == names.end())
        throw DataError(file.path() + ": column '" + name + "' is not in " + first.path() +
                        "; name the columns to read");
  }

  static void check_columns(const ParquetFile& first, const DatasetFile& opened) {
    const ParquetFile& file = opened.file;
    for (size_t i = 0; i < first.columns().size(); ++i) {
      const ParquetColumn& expected = first.columns()[i];
      const ParquetColumn& column = file.columns()[opened.places.empty() ? i : opened.places[i]];
      if (column == expected) continue;
      throw DataError(file.path(), "column '" + expected.name + "'",
                      text_of(expected) + " as in " + first.path(), text_of(column));
    }
  }

  const ParquetDatasetOptions& options_;
  const std::shared_ptr<ReadTimes>& times_;
};

/// Returns `open(i)` for each number below `count`.
template <typename Open>
auto opened_in_parallel(size_t count, const Open& open) {
  std::vector<std::optional<decltype(open(size_t{0}))>> opened(count);
  ParallelBlocks(kMostOpening).for_each(count, /*block_size=*/1, [&](size_t i, size_t) {
    opened[i] = open(i);
  });
  std::vector<decltype(open(size_t{0}))> files;
  files.reserve(count);
  for (auto& file : opened) files.push_back(std::move(*file));
  return files;
}

}  // namespace

std::vector<ParquetValues> DatasetFile::read_row_group(int row_group, c10::ArrayRef<uint32_t> order) const {
  std::vector<ParquetValues> of_file = file.read_row_group(row_group, order);
  if (places.empty()) return of_file;
  std::vector<ParquetValues> values;
  for (const size_t place : places) values.push_back(std::move(of_file[place]));
  return values;
}

std::vector<ParquetFile> open_parquet_files(const std::vector<std::string>& paths,
                                            const std::function<ParquetFile(const std::string&)>& open) {
  return opened_in_parallel(paths.size(), [&](size_t i) { return open(paths[i]); });
}

std::vector<DatasetFile> open_dataset_files(const std::vector<std::string>& paths,
                                            const ParquetDatasetOptions& options,
                                            const std::shared_ptr<ReadTimes>& times) {
  const Opener opener(options, times);
  const ParquetFile first = opener.open(paths.front(), options.columns);
  return opened_in_parallel(paths.size(), [&](size_t i) {
    return i == 0 ? DatasetFile{first} : opener.open_like(first, paths[i]);
  });
}

std::string text_of(const ParquetColumn& column) {
  const std::string type = c10::toString(column.type) + (column.unit.empty() ? "" : " in " + column.unit);
  switch (column.shape) {
    case ParquetShape::kNumber:
      return type;
    case ParquetShape::kFixedList:
      return "lists of " + std::to_string(column.length) + " " + type;
    case ParquetShape::kList:
      return "lists of " + type;
    default:
      return "strings or binaries";
  }
}

}  // namespace lockstep
