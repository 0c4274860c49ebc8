#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

/// A use of a unit: its forward, the forward of a recomputation within backward, or its backward.
struct UnitUse {
  enum class Kind : uint8_t { kForward, kRecomputation, kBackward };

  int64_t unit = 0;  ///< its number
  Kind kind = Kind::kForward;

  bool operator==(const UnitUse&) const = default;
};

/// Remembers in which order a replica's units are used, and tells which use comes next.
///
/// A pass is what lies between the beginning of a run, or a forward that follows a backward, and the next of
/// these. Each sequence of uses from the beginning of a pass leads to the use that followed it the last time.
/// So steps of different kinds, such as training and evaluation, do not disturb each other once they differ.
///
/// The answers depend on the calls alone: ranks that make the same calls get the same answers.
class UnitOrder {
 public:
  UnitOrder() : places_(1) {}

  /// Moves on by one use.
  void move_on(const UnitUse& use);
  /// Returns the use that is expected next, if one is.
  std::optional<UnitUse> next() const;
  /// Expects nothing next here until a use has followed again.
  void distrust() { places_[at_].is_trusted = false; }
  /// Begins a run.
  void begin_run();
  /// Forgets everything.
  void forget() { *this = UnitOrder(); }

  /// Passes of more uses in all are forgotten, so that orders that never repeat need no more memory.
  static constexpr size_t kMostPlaces = 1 << 14;
  size_t num_places() const { return places_.size(); }

 private:
  /// A sequence of uses from the beginning of a pass.
  struct Place {
    std::vector<std::pair<UnitUse, size_t>> next;  // uses that have followed, and where they lead
    size_t last = 0;                               // of these, the one that followed last
    bool is_trusted = false;
  };

  size_t follow(const UnitUse& use);

  std::vector<Place> places_;  // the first is the beginning of a pass
  size_t at_ = 0;
  bool is_in_backward_ = false;
};

}  // namespace lockstep
