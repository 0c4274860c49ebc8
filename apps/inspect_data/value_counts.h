#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::apps {

/// The number of times that each value of a column occurs, as long as there are few different ones, and the
/// number of different ones. Beyond kMostCounted, that is estimated: Flajolet, Fusy, Gandouet and Meunier,
/// "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm" (2007), with 2^14 registers
/// and hashes of 64 bits, which gives a standard error of 0.8 %. The order of values does not matter. Not
/// thread-safe.
///
/// Example:
///
///     ValueCounts counts;
///     for (const std::string& name : names) counts.add(name);
///     std::cout << (counts.is_exact() ? "" : "about ") << counts.num_distinct() << '\n';
class ValueCounts {
 public:
  static constexpr size_t kMostCounted = 1000;
  /// Longer texts count as different by their hashes, and are not kept.
  static constexpr size_t kLongestText = 256;

  /// Adds integers or the bits of floating-point numbers.
  void add(uint64_t number);
  void add(std::string_view text);
  void merge(const ValueCounts& other);

  bool is_exact() const { return registers_.empty(); }
  int64_t num_distinct() const;
  /// Returns the counts by number, or by text; empty unless they are exact.
  const std::unordered_map<uint64_t, int64_t>& of_numbers() const { return numbers_; }
  const std::unordered_map<std::string, int64_t>& of_texts() const { return texts_; }

 private:
  void note(uint64_t hash);
  void estimate();

  std::unordered_map<uint64_t, int64_t> numbers_;
  std::unordered_map<std::string, int64_t> texts_;
  std::unordered_map<uint64_t, int64_t> long_texts_;  // by hash
  std::vector<uint8_t> registers_;                    // empty while all values are counted
};

}  // namespace lockstep::apps
