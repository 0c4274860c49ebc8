#include "lockstep/datasets/clicks/generated_clicks.h"

#include <ATen/core/PhiloxRNGEngine.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep {
namespace {

/// All seeds draw from the same world.
constexpr uint64_t kWorld = 0x636c69636b73ULL;
constexpr double kBias = -1.6;
constexpr double kMissing = 0.05;  // share of missing values
constexpr double kFewest = 8, kMost = 2000;

/// Uniform in (0, 1).
double uniform(at::philox_engine& engine) {
  const uint64_t high = engine();
  const uint64_t bits = (high << 21) ^ (engine() >> 11);
  return (static_cast<double>(bits & ((uint64_t{1} << 53) - 1)) + 0.5) * 0x1p-53;
}

/// Standard normal, by the method of Box and Muller (1958).
double normal(at::philox_engine& engine) {
  const double radius = std::sqrt(-2 * std::log(uniform(engine)));
  return radius * std::cos(2 * std::numbers::pi * uniform(engine));
}

/// Returns a value that looks like the hashes in real logs.
uint32_t category_of(int column, size_t rank) {
  at::philox_engine engine(kWorld + 1 + static_cast<uint64_t>(column), rank);
  return static_cast<uint32_t>(engine());
}

}  // namespace

GeneratedClicks::GeneratedClicks(const GeneratedClicksOptions& options) : options_(options) {
  if (options.count < 0)
    throw std::invalid_argument("[GeneratedClicks] expected a count of 0 or more, but got " +
                                std::to_string(options.count));
  at::philox_engine engine(kWorld, 0);
  for (double& weight : weights_) weight = 0.25 * normal(engine);
  for (int column = 0; column < kClickCategories; ++column) {
    const double share = static_cast<double>(column) / (kClickCategories - 1);
    const auto count = static_cast<size_t>(std::lround(kFewest * std::pow(kMost / kFewest, share)));
    auto& effects = effects_[static_cast<size_t>(column)];
    for (size_t rank = 0; rank <= count; ++rank) effects.push_back(0.35 * normal(engine));
  }
}

GeneratedClicks::Drawn GeneratedClicks::draw(size_t index) const {
  at::philox_engine engine(options_.seed, index);
  Drawn drawn;
  double z = kBias;
  for (size_t i = 0; i < drawn.row.numbers.size(); ++i) {
    const double value = std::exp(1.2 * normal(engine));
    if (uniform(engine) < kMissing) continue;
    drawn.row.numbers[i] = static_cast<int64_t>(value);
    // Subtracts the feature's approximate mean, so that kBias stays the bias.
    z += weights_[i] * (static_cast<double>(click_feature(drawn.row.numbers[i])) - 0.7);
  }
  for (size_t column = 0; column < effects_.size(); ++column) {
    const auto& effects = effects_[column];
    const auto count = static_cast<double>(effects.size() - 1);
    // Log-uniform from 1 to count.
    const auto rank = static_cast<size_t>(std::min(count, std::pow(count + 1, uniform(engine))));
    const bool is_missing = uniform(engine) < kMissing;
    z += effects[is_missing ? 0 : rank];
    if (!is_missing) drawn.row.categories[column] = category_of(static_cast<int>(column), rank);
  }
  drawn.probability = 1 / (1 + std::exp(-z));
  drawn.row.is_click = uniform(engine) < drawn.probability;
  return drawn;
}

ClickRow GeneratedClicks::row(size_t index) const {
  return draw(index).row;
}

double GeneratedClicks::probability(size_t index) const {
  return draw(index).probability;
}

ClickBatch GeneratedClicks::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, *size(), "GeneratedClicks");
  std::vector<ClickRow> rows;
  rows.reserve(indices.size());
  for (const size_t index : indices) rows.push_back(row(index));
  return click_batch(rows);
}

}  // namespace lockstep
