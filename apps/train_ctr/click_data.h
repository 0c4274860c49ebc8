#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/apps/shared/chunked_range.h"
#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/datasets/clicks/click_batch.h"
#include "lockstep/datasets/clicks/click_files.h"
#include "lockstep/datasets/clicks/generated_clicks.h"
#include "lockstep/datasets/clicks/parquet_clicks.h"

namespace lockstep::apps {

/// A contiguous range of rows of click logs, as an indexed dataset.
class Clicks {
 public:
  using Source = std::variant<ClickFiles, GeneratedClicks, ParquetClicks>;

  Clicks(Source source, size_t first, size_t count)
      : source_(std::move(source)), first_(first), count_(count) {}

  std::optional<size_t> size() const { return count_; }
  const Source& source() const { return source_; }
  /// Returns the place of the first row in the source.
  size_t first() const { return first_; }
  ClickBatch get_batch(c10::ArrayRef<size_t> indices) const;
  /// Says which rows these are, as the source's identity() does.
  std::string identity() const;
  /// Returns the true probability of a click in a row; none unless the rows are generated.
  std::optional<double> best_probability(size_t index) const;
  /// Returns whether the rows are of Parquet files.
  bool are_parquet() const { return std::holds_alternative<ParquetClicks>(source_); }
  /// Returns the times of reading the files, with those of other ranges of them; null unless they are
  /// Parquet.
  const ReadTimes* read_times() const {
    return are_parquet() ? &std::get<ParquetClicks>(source_).rows().read_times() : nullptr;
  }

 private:
  Source source_;
  size_t first_;
  size_t count_;
};

/// Rows of Parquet files, as a ChunkedDataset.
using ParquetRange = ChunkedRange<Clicks, ParquetClicks>;

/// Rows to train and to test on.
struct ClickData {
  Clicks train;
  Clicks test;
  std::string description;  ///< one line
  int64_t num_malformed = 0;
  std::string first_malformed;  ///< file, line and problem of the first malformed row
};

/// Returns how many row groups a shuffled batch's rows are from, as a ChunkedOrder has it; 0 if they are not
/// of Parquet files.
int64_t lanes_of(const Clicks& clicks, int64_t batch_size);

/// Opens the data that the options name. Blocks while new files are indexed, and tells `log` if that may take
/// long. Throws DataError, also if the files have too few rows to both train and test, or are of several
/// kinds.
ClickData open_click_data(const CtrWork& work, const std::function<void(const std::string&)>& log = {});

}  // namespace lockstep::apps
