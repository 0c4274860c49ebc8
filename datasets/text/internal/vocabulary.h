#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The tokens of a tokenizer with their ids, which may leave out numbers. Reading is thread-safe.
class Vocabulary {
 public:
  /// Ids are below this. It bounds the memory that a damaged file can ask for.
  static constexpr uint32_t kMaxSize = 1U << 22;

  /// Adds a token whose id is below kMaxSize. Returns false, and adds nothing, if there is already a token of
  /// this text or of this id.
  bool add(std::string_view token, uint32_t id);

  /// As add(), but find() does not find the token, so that its text may be that of another one.
  bool add_hidden(std::string_view token, uint32_t id);

  std::optional<uint32_t> find(std::string_view token) const;
  /// Returns whether a token has this id.
  bool contains(uint32_t id) const { return id < tokens_.size() && tokens_[id].begin != kNone; }
  /// Returns the token of an id that it contains.
  std::string_view token(uint32_t id) const { return {text_.data() + tokens_[id].begin, tokens_[id].size}; }
  /// Returns the highest id plus 1.
  size_t size() const { return tokens_.size(); }
  size_t num_tokens() const { return num_tokens_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Place {
    size_t begin = kNone;
    size_t size = 0;
    bool is_hidden = false;
  };

  /// Returns where the token is in the index, or where it would be.
  size_t slot_of(std::string_view token) const;
  void grow();
  void store(std::string_view token, uint32_t id);

  std::string text_;  // of all tokens
  std::vector<Place> tokens_;
  size_t num_tokens_ = 0;
  std::vector<uint32_t> index_;  // ids plus 1 by hash, 0 where none is
};

}  // namespace lockstep
