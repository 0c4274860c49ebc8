#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace lockstep {

/// Identifies a push of gradients to one server. It stays the same if the pushing closure runs again,
/// elsewhere or after a restart.
struct PushId {
  uint64_t closure = 0;
  uint64_t number = 0;  ///< index among the closure's pushes

  bool operator==(const PushId&) const = default;
  bool operator<(const PushId& other) const {
    return std::tie(closure, number) < std::tie(other.closure, other.number);
  }
};

/// The pushes that a shard has applied, so that none is applied twice. Not thread-safe.
class AppliedPushes {
 public:
  /// Returns whether the push was applied; true for every push of a forgotten closure.
  bool has(const PushId& push) const;
  void add(const PushId& push);
  /// Forgets all closures before `closure`. They are done, so a later push of one of them is a repetition.
  void forget_before(uint64_t closure);

  /// Adds all pushes of `other`.
  void unite(const AppliedPushes& other);

  /// Returns the state to save: first {first closure that is not forgotten, 0}, then all added pushes in
  /// order.
  std::vector<PushId> saved() const;
  /// Throws InvalidArgument for anything that saved() cannot return.
  static AppliedPushes restored(const std::vector<PushId>& saved);

 private:
  uint64_t first_closure_ = 0;                      // earlier ones are forgotten
  std::map<uint64_t, std::set<uint64_t>> numbers_;  // by closure
};

}  // namespace lockstep
