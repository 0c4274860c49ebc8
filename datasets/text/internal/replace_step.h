#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// Writes `to` for each `from` in a text.
struct ReplaceStep {
  std::string from;  ///< not empty
  std::string to;
};

/// The size that the steps of a file may give a text. A compatible form of Unicode makes a text up to 11
/// times longer, and a space that is written as another character 3 times. Without a limit, a few steps that
/// each double a text would fill the memory.
class RewrittenSize {
 public:
  explicit RewrittenSize(size_t text_size) : text_size_(text_size), most_(32 * text_size + 256) {}

  /// Throws DataError if a text has become too long.
  void check(size_t size) const {
    if (size > most_) refuse();
  }

 private:
  [[noreturn]] void refuse() const;

  size_t text_size_;
  size_t most_;
};

/// Appends a text with what the step replaces. Throws as RewrittenSize.
void append_replaced(std::string_view text, const ReplaceStep& step, const RewrittenSize& limit,
                     std::string& result);

}  // namespace lockstep
