#include "lockstep/tests/runtime/exchange/plan_memory.h"

#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <random>

#include "lockstep/runtime/exchange/make_plan.h"

namespace lockstep {
namespace {

/// Values that are made once: under a sanitizer, random numbers take longer than exchanges. `known` has them
/// by their number, and `make` makes so many of them.
std::vector<double> first_values(std::map<int, std::vector<double>>& known, int number, size_t count,
                                 const std::function<std::vector<double>(size_t)>& make) {
  auto& values = known[number];
  if (values.size() < count) values = make(count);
  return {values.begin(), values.begin() + static_cast<ptrdiff_t>(count)};
}

std::vector<double> random_values(int rank, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::uniform_real_distribution<double> magnitude(-20, 20);
  std::vector<double> values(count);
  for (double& value : values) value = std::exp2(magnitude(random)) * (random() % 2 == 0 ? 1 : -1);
  return values;
}

}  // namespace

std::vector<double> values_of(int rank, size_t count) {
  static std::mutex mutex;
  static std::map<int, std::vector<double>> known;
  const std::lock_guard lock(mutex);
  return first_values(known, rank, count, [&](size_t all) { return random_values(rank, all); });
}

std::vector<double> ordered_sum(int size, size_t count) {
  static std::mutex mutex;
  static std::map<int, std::vector<double>> known;
  const std::lock_guard lock(mutex);
  return first_values(known, size, count, [&](size_t all) {
    std::vector<std::vector<double>> parts;
    parts.reserve(static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank) parts.push_back(values_of(rank, all));
    for (const auto& step : sum_order(size)) {
      auto& into = parts[static_cast<size_t>(step.into)];
      for (size_t i = 0; i < all; ++i) into[i] += parts[static_cast<size_t>(step.from)][i];
    }
    return parts[0];
  });
}

}  // namespace lockstep
