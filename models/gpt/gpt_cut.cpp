#include "lockstep/models/gpt/gpt_cut.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

namespace lockstep {
namespace {

/// Returns the multiples of `ranks` next to `given`, up to `most`, for which `fits` is true.
std::vector<int64_t> nearest_multiples(int64_t given, int64_t ranks, int64_t most,
                                       const std::function<bool(int64_t)>& fits) {
  std::vector<int64_t> nearest;
  int64_t size = given / ranks * ranks;
  while (size > 0 && !fits(size)) size -= ranks;
  if (size > 0) nearest.push_back(size);
  size = (given / ranks + 1) * ranks;
  while (size <= most && !fits(size)) size += ranks;
  if (size <= most) nearest.push_back(size);
  return nearest;
}

bool fits_always(int64_t) {
  return true;
}

}  // namespace

std::optional<UncutGptSize> uncut_gpt_size(const GptOptions& given, int64_t ranks) {
  const GptOptions options = complete_gpt_options(given);
  const int64_t heads = options.num_heads;
  if (heads % ranks != 0) {
    // The heads of most models make up their width.
    const bool fill_width = heads * options.head_width == options.width;
    const auto fits = [&](int64_t count) { return !fill_width || options.width % count == 0; };
    auto would_do = nearest_multiples(heads, ranks, options.width, fits);
    if (would_do.empty()) would_do = nearest_multiples(heads, ranks, heads + ranks, fits_always);
    return UncutGptSize{"num_heads", heads, std::move(would_do)};
  }
  if (options.num_key_value_heads % ranks != 0) {
    const auto divides = [&](int64_t count) { return heads % count == 0; };
    return UncutGptSize{"num_key_value_heads", options.num_key_value_heads,
                        nearest_multiples(options.num_key_value_heads, ranks, heads, divides)};
  }
  const int64_t hidden = options.hidden_width;
  if (hidden % ranks != 0 && options.num_experts == 0)  // Experts stay whole.
    return UncutGptSize{"hidden_width", hidden,
                        nearest_multiples(hidden, ranks, hidden + ranks, fits_always)};
  const int64_t tokens = options.vocabulary_size;
  if (tokens % ranks != 0) return UncutGptSize{"vocabulary_size", tokens, {(tokens / ranks + 1) * ranks}};
  return std::nullopt;
}

std::string would_do_text(const UncutGptSize& size) {
  return fmt::format("{} would do", fmt::join(size.would_do, " or "));
}

}  // namespace lockstep
