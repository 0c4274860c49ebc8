#include "lockstep/datasets/tokens/ngram_model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {
namespace {

constexpr uint32_t kNoNgram = UINT32_MAX;

void check_token(uint32_t token, uint32_t vocab_size) {
  if (token >= vocab_size)
    throw std::invalid_argument("[NgramModel] expected tokens below " + std::to_string(vocab_size) +
                                ", but got " + std::to_string(token));
}

}  // namespace

/// The n-grams as a tree: a child is its parent with one more token at the end. The root, number 0, is empty.
class NgramModel::Counts {
 public:
  struct Ngram {
    uint32_t count = 0;          ///< how often it was counted with all its tokens
    uint32_t num_next = 0;       ///< how often a token after it was counted
    uint32_t num_different = 0;  ///< and how many different ones
  };

  Counts() : ngrams_(1), table_(kSmallest) {}

  size_t size() const { return ngrams_.size() - 1; }
  const Ngram& operator[](uint32_t ngram) const { return ngrams_[ngram]; }

  /// Returns kNoNgram if it was never seen.
  uint32_t child(uint32_t parent, uint32_t token) const {
    return table_[place_of(key_of(parent, token))].ngram;
  }
  /// Adds the child if it was never seen.
  uint32_t made_child(uint32_t parent, uint32_t token) {
    const uint64_t key = key_of(parent, token);
    size_t place = place_of(key);
    if (table_[place].ngram != kNoNgram) return table_[place].ngram;
    if (ngrams_.size() >= kNoNgram - 1) throw std::length_error("[NgramModel] more than 2^32 n-grams");
    if (2 * ngrams_.size() > table_.size()) {
      grow();
      place = place_of(key);
    }
    table_[place] = {key, static_cast<uint32_t>(ngrams_.size())};
    ngrams_.emplace_back();
    return table_[place].ngram;
  }
  void count_child(uint32_t parent, uint32_t child) {
    ++ngrams_[parent].num_next;
    if (ngrams_[child].count++ == 0) ++ngrams_[parent].num_different;
  }

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t ngram = kNoNgram;
  };
  static constexpr size_t kSmallest = 1024;  // a power of 2, as every size of the table

  static uint64_t key_of(uint32_t parent, uint32_t token) { return uint64_t{parent} << 32 | token; }
  size_t place_of(uint64_t key) const {
    const size_t mask = table_.size() - 1;
    // The product's high bits depend on all bits of the key.
    size_t place = (key * 0x9e3779b97f4a7c15ULL >> 32) & mask;
    while (table_[place].ngram != kNoNgram && table_[place].key != key) place = (place + 1) & mask;
    return place;
  }
  void grow() {
    std::vector<Entry> before(2 * table_.size());
    before.swap(table_);
    for (const Entry& entry : before)
      if (entry.ngram != kNoNgram) table_[place_of(entry.key)] = entry;
  }

  std::vector<Ngram> ngrams_;
  std::vector<Entry> table_;  // open addressing
};

NgramModel::NgramModel(const NgramModelOptions& options)
    : options_(options), counts_(std::make_unique<Counts>()) {
  if (options.order < 1 || options.order > kMaxOrder)
    throw std::invalid_argument("[NgramModel] expected an order of 1 to " + std::to_string(kMaxOrder) +
                                ", but got " + std::to_string(options.order));
  if (options.vocab_size < 1)
    throw std::invalid_argument("[NgramModel] expected the size of the vocabulary, but got 0");
}

NgramModel::~NgramModel() = default;
NgramModel::NgramModel(NgramModel&&) noexcept = default;
NgramModel& NgramModel::operator=(NgramModel&&) noexcept = default;

NgramModel::LastNgrams NgramModel::none_read() {
  LastNgrams last;
  last.fill(kNoNgram);
  last[0] = 0;  // the root
  return last;
}

size_t NgramModel::num_ngrams() const {
  return counts_->size();
}

void NgramModel::count(std::span<const uint32_t> tokens) {
  // The root counts them all.
  if (tokens.size() > UINT32_MAX - (*counts_)[0].num_next)
    throw std::length_error("[NgramModel] expected at most 4,294,967,295 tokens in all, but got more");
  LastNgrams last = none_read();
  const auto order = static_cast<size_t>(options_.order);
  for (size_t i = 0; i < tokens.size(); ++i) {
    check_token(tokens[i], options_.vocab_size);
    LastNgrams next = none_read();
    for (size_t length = 0; length < order && last[length] != kNoNgram; ++length) {
      next[length + 1] = counts_->made_child(last[length], tokens[i]);
      if (i > 0) counts_->count_child(last[length], next[length + 1]);
    }
    last = next;
  }
}

double NgramModel::loss(std::span<const uint32_t> tokens) const {
  LastNgrams last = none_read();
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double probability = read(last, tokens[i]);
    if (i > 0) sum -= std::log(probability);
  }
  return sum;
}

double NgramModel::probability(std::span<const uint32_t> context, uint32_t token) const {
  LastNgrams last = none_read();
  for (const uint32_t before :
       context.last(std::min(context.size(), static_cast<size_t>(options_.order) - 1)))
    read(last, before);
  return read(last, token);
}

double NgramModel::read(LastNgrams& last, uint32_t token) const {
  check_token(token, options_.vocab_size);
  LastNgrams next = none_read();
  double probability = 1.0 / options_.vocab_size;
  const auto order = static_cast<size_t>(options_.order);
  for (size_t length = 0; length < order && last[length] != kNoNgram; ++length) {
    const auto& context = (*counts_)[last[length]];
    next[length + 1] = counts_->child(last[length], token);
    const uint32_t count = next[length + 1] == kNoNgram ? 0 : (*counts_)[next[length + 1]].count;
    if (context.num_next > 0)
      probability = (count + context.num_different * probability) /
                    (double{1} * context.num_next + context.num_different);
  }
  last = next;
  return probability;
}

}  // namespace lockstep
