#include "lockstep/apps/train_ctr/click_data.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

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

ClickFiles open_files(const std::vector<std::string>& paths, const CtrWork& work,
                      const std::function<void(const std::string&)>& log) {
  return ClickFiles(
      {.paths = paths, .skips_malformed = work.skip_bad, .index_folder = work.index_dir, .on_message = log});
}

/// Returns a text such as "logs/day_0" or "24 files, logs/day_0 to logs/day_23".
std::string text_of(const ClickFiles& files) {
  const auto& paths = files.paths();
  if (paths.size() == 1) return paths.front();
  return std::to_string(paths.size()) + " files, " + paths.front() + " to " + paths.back();
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

ClickData open_click_data(const CtrWork& work, const std::function<void(const std::string&)>& log) {
  if (is_generated(work)) return generated(work);
  const ClickFiles files = open_files(work.data, work, log);
  const size_t rows = *files.size();
  if (!work.test_data.empty()) {
    const ClickFiles test = open_files(work.test_data, work, log);
    return {.train = {files, 0, at_most(rows, work.train_rows)},
            .test = {test, 0, at_most(*test.size(), work.test_rows)},
            .description = text_of(files) + " to train on, " + text_of(test) + " to test on",
            .num_malformed = files.num_malformed() + test.num_malformed(),
            .first_malformed = files.num_malformed() > 0 ? files.first_malformed() : test.first_malformed()};
  }
  const auto to_test = static_cast<size_t>(std::ceil(work.test_share * static_cast<double>(rows)));
  if (to_test >= rows)
    throw DataError(text_of(files) + ": expected rows to train on and to test on, but it has " +
                    std::to_string(rows) + " in all");
  const size_t to_train = rows - to_test;
  return {.train = {files, 0, at_most(to_train, work.train_rows)},
          .test = {files, to_train, at_most(to_test, work.test_rows)},
          .description = text_of(files) + ", the last rows to test on",
          .num_malformed = files.num_malformed(),
          .first_malformed = files.first_malformed()};
}

}  // namespace lockstep::apps
