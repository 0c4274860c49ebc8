#include "lockstep/apps/train_ctr/click_data.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kGeneratedToTrain = 4'000'000;
constexpr int64_t kGeneratedToTest = 100'000;

ClickData generated(const CtrWork& work) {
  const int64_t to_train = work.train_rows > 0 ? work.train_rows : kGeneratedToTrain;
  const int64_t to_test = work.test_rows > 0 ? work.test_rows : kGeneratedToTest;
  // Training and test rows come from one generated world and have no row in common.
  const GeneratedClicks clicks({.count = to_train + to_test, .seed = work.seed});
  const auto first_to_test = static_cast<size_t>(to_train);
  return {.train = {clicks, 0, first_to_test},
          .test = {clicks, first_to_test, static_cast<size_t>(to_test)},
          .description = "generated, as no file was asked for"};
}

size_t at_most(size_t count, int64_t most) {
  return most > 0 ? std::min(count, static_cast<size_t>(most)) : count;
}

/// One set of files.
struct OpenClicks {
  Clicks::Source source;
  size_t rows = 0;
  std::string text;  // such as "logs/day_0" or "24 files, logs/day_0 to logs/day_23"
  int64_t num_malformed = 0;
  std::string first_malformed;
};

std::string text_of(const std::vector<std::string>& paths) {
  if (paths.size() == 1) return paths.front();
  return std::to_string(paths.size()) + " files, " + paths.front() + " to " + paths.back();
}

OpenClicks open_parquet_clicks(const std::vector<std::string>& paths, const CtrWork& work) {
  // Rows to train on and rows to test on that are in the same files share their memory.
  const double memory = parse_bytes("parquet-memory", work.parquet_memory) / (work.test_data.empty() ? 1 : 2);
  std::string first_skipped;
  const ParquetClicks clicks({.paths = paths,
                              .memory_limit = static_cast<int64_t>(memory),
                              .skips_unreadable = work.skip_bad,
                              .on_message = [&](const std::string& line) {
                                if (first_skipped.empty()) first_skipped = line;
                              }});
  return {.source = clicks,
          .rows = *clicks.size(),
          .text = text_of(clicks.rows().paths()),
          .num_malformed = clicks.rows().num_skipped_rows(),
          .first_malformed = first_skipped};
}

OpenClicks open_clicks(const std::vector<std::string>& places, const CtrWork& work,
                       const std::function<void(const std::string&)>& log) {
  if (are_parquet_files(places)) return open_parquet_clicks(places, work);
  const ClickFiles files(
      {.paths = places, .skips_malformed = work.skip_bad, .index_folder = work.index_dir, .on_message = log});
  return {.source = files,
          .rows = *files.size(),
          .text = text_of(files.paths()),
          .num_malformed = files.num_malformed(),
          .first_malformed = files.first_malformed()};
}

}  // namespace

ClickBatch Clicks::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, count_, "Clicks");
  std::vector<size_t> moved(indices.begin(), indices.end());
  for (auto& index : moved) index += first_;
  return std::visit([&](const auto& source) { return source.get_batch(moved); }, source_);
}

std::string Clicks::identity() const {
  const std::string of_source = std::visit([](const auto& source) { return source.identity(); }, source_);
  return of_source + ", from row " + std::to_string(first_);
}

std::optional<double> Clicks::best_probability(size_t index) const {
  const auto* generated = std::get_if<GeneratedClicks>(&source_);
  return generated ? std::optional(generated->probability(first_ + index)) : std::nullopt;
}

int64_t lanes_of(const Clicks& clicks, int64_t batch_size) {
  if (!clicks.are_parquet()) return 0;
  const ParquetRange rows(clicks);
  const auto chunks = static_cast<int64_t>(rows.chunk_sizes().size());
  const auto open = static_cast<int64_t>(rows.max_open_chunks());
  return std::max<int64_t>(std::min({open, chunks, batch_size}), 1);
}

ClickData open_click_data(const CtrWork& work, const std::function<void(const std::string&)>& log) {
  if (is_generated(work)) return generated(work);
  const OpenClicks files = open_clicks(work.data, work, log);
  if (!work.test_data.empty()) {
    const OpenClicks test = open_clicks(work.test_data, work, log);
    return {.train = {files.source, 0, at_most(files.rows, work.train_rows)},
            .test = {test.source, 0, at_most(test.rows, work.test_rows)},
            .description = files.text + " to train on, " + test.text + " to test on",
            .num_malformed = files.num_malformed + test.num_malformed,
            .first_malformed = files.num_malformed > 0 ? files.first_malformed : test.first_malformed};
  }
  const auto to_test = static_cast<size_t>(std::ceil(work.test_share * static_cast<double>(files.rows)));
  if (to_test >= files.rows)
    throw DataError(files.text + ": expected rows to train on and to test on, but it has " +
                    std::to_string(files.rows) + " in all");
  const size_t to_train = files.rows - to_test;
  return {.train = {files.source, 0, at_most(to_train, work.train_rows)},
          .test = {files.source, to_train, at_most(to_test, work.test_rows)},
          .description = files.text + ", the last rows to test on",
          .num_malformed = files.num_malformed,
          .first_malformed = files.first_malformed};
}

}  // namespace lockstep::apps
