#include "lockstep/apps/train_ctr/click_data.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/datasets/files/data_error.h"

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

}  // namespace

ClickBatch Clicks::get_batch(c10::ArrayRef<size_t> indices) const {
  std::vector<size_t> moved(indices.begin(), indices.end());
  for (auto& index : moved) index += first_;
  return std::visit([&](const auto& source) { return source.get_batch(moved); }, source_);
}

std::optional<double> Clicks::best_probability(size_t index) const {
  const auto* generated = std::get_if<GeneratedClicks>(&source_);
  return generated ? std::optional(generated->probability(first_ + index)) : std::nullopt;
}

ClickData open_click_data(const CtrWork& work) {
  if (work.data == "generated") return generated(work);
  int64_t num_malformed = 0;
  std::string first_malformed;
  const auto open = [&](const std::string& path) {
    ClickFile file({.path = path, .skips_malformed = work.skip_bad});
    if (file.num_malformed() > 0 && first_malformed.empty())
      first_malformed = path + ": " + file.first_malformed();
    num_malformed += file.num_malformed();
    return file;
  };
  const auto file = open(work.data);
  const size_t rows = *file.size();
  if (!work.test_data.empty()) {
    const auto test = open(work.test_data);
    return {.train = {file, 0, at_most(rows, work.train_rows)},
            .test = {test, 0, at_most(*test.size(), work.test_rows)},
            .description = work.data + " to train on, " + work.test_data + " to test on",
            .num_malformed = num_malformed,
            .first_malformed = first_malformed};
  }
  const auto to_test = static_cast<size_t>(std::ceil(work.test_share * static_cast<double>(rows)));
  if (to_test >= rows)
    throw DataError(work.data + ": expected rows to train on and to test on, but it has " +
                    std::to_string(rows) + " in all");
  const size_t to_train = rows - to_test;
  return {.train = {file, 0, at_most(to_train, work.train_rows)},
          .test = {file, to_train, at_most(to_test, work.test_rows)},
          .description = work.data + ", its last rows to test on",
          .num_malformed = num_malformed,
          .first_malformed = first_malformed};
}

}  // namespace lockstep::apps
