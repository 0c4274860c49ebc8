#include "lockstep/datasets/text/internal/vocabulary.h"

#include "lockstep/datasets/text/internal/byte_hash.h"

namespace lockstep {

bool Vocabulary::add(std::string_view token, uint32_t id) {
  if (contains(id)) return false;
  if (2 * (num_tokens_ + 1) > index_.size()) grow();
  const size_t slot = slot_of(token);
  if (index_[slot] != 0) return false;
  index_[slot] = id + 1;
  store(token, id);
  return true;
}

bool Vocabulary::add_hidden(std::string_view token, uint32_t id) {
  if (contains(id)) return false;
  store(token, id);
  tokens_[id].is_hidden = true;
  return true;
}

void Vocabulary::store(std::string_view token, uint32_t id) {
  if (id >= tokens_.size()) tokens_.resize(size_t{id} + 1);
  tokens_[id] = {.begin = text_.size(), .size = token.size()};
  text_ += token;
  ++num_tokens_;
}

std::optional<uint32_t> Vocabulary::find(std::string_view token) const {
  if (index_.empty()) return std::nullopt;
  const uint32_t found = index_[slot_of(token)];
  return found == 0 ? std::nullopt : std::optional(found - 1);
}

size_t Vocabulary::slot_of(std::string_view token) const {
  size_t slot = hash_of_bytes(token) & (index_.size() - 1);
  while (index_[slot] != 0 && this->token(index_[slot] - 1) != token) slot = (slot + 1) & (index_.size() - 1);
  return slot;
}

void Vocabulary::grow() {
  constexpr size_t kFirstSize = 64;
  index_.assign(index_.empty() ? kFirstSize : 2 * index_.size(), 0);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].begin == kNone || tokens_[id].is_hidden) continue;
    index_[slot_of(token(static_cast<uint32_t>(id)))] = static_cast<uint32_t>(id) + 1;
  }
}

}  // namespace lockstep
