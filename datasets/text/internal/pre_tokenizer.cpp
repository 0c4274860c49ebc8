#include "lockstep/datasets/text/internal/pre_tokenizer.h"

#include <optional>

#include "lockstep/datasets/text/internal/scratch_pool.h"
#include "lockstep/datasets/text/internal/utf8.h"

namespace lockstep {
namespace {

/// Makes pieces out of matches and the text between them, which come in order.
template <typename Emit>
class PieceBuilder {
 public:
  PieceBuilder(SplitBehavior behavior, const Emit& emit) : behavior_(behavior), emit_(emit) {}

  void add(size_t begin, size_t end, bool is_match) {
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (!is_match) emit(begin, end);
        return;
      case SplitBehavior::kIsolated:
        emit(begin, end);
        return;
      case SplitBehavior::kContiguous:
        extend_if(is_match == last_is_match_, begin, end);
        break;
      case SplitBehavior::kMergedWithPrevious:
        extend_if(is_match && !last_is_match_, begin, end);
        break;
      case SplitBehavior::kMergedWithNext:
        extend_if(last_is_match_ && !is_match, begin, end);
        break;
    }
    last_is_match_ = is_match;
  }

  void finish() {
    if (is_open_) emit(begin_, end_);
  }

 private:
  void emit(size_t begin, size_t end) {
    if (begin < end) emit_(begin, end);
  }

  void extend_if(bool belongs_together, size_t begin, size_t end) {
    if (!is_open_ || !belongs_together) {
      finish();
      begin_ = begin;
    }
    is_open_ = true;
    end_ = end;
  }

  const SplitBehavior behavior_;
  const Emit& emit_;
  bool is_open_ = false;
  bool last_is_match_ = false;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace

void PreTokenizerScratch::trim() {
  for (std::string& text : texts) release_if_large(text);
}

void PreTokenizer::cut(std::string_view text, PieceStart start, PreTokenizerScratch& scratch,
                       WordSink& sink) const {
  scratch.texts.resize(steps_.size());
  if (!text.empty()) cut_from(0, text, start, scratch, sink);
}

void PreTokenizer::cut_from(size_t step, std::string_view text, PieceStart start,
                            PreTokenizerScratch& scratch, WordSink& sink) const {
  if (step == steps_.size()) return sink.add_word(text);
  const auto* spaces = std::get_if<SpaceStep>(&steps_[step]);
  if (spaces == nullptr) return split(step, text, start, scratch, sink);

  std::string& rewritten = scratch.texts[step];
  rewritten.clear();
  const bool begins_with_mark = text.starts_with(spaces->mark) || text.starts_with(' ');
  if (!begins_with_mark && start != PieceStart::kBrokenBytes &&
      (spaces->prefix == SpaceStep::Prefix::kAlways ||
       (spaces->prefix == SpaceStep::Prefix::kFirst && start == PieceStart::kText))) {
    rewritten += spaces->mark;
  }
  for (const char byte : text) {
    if (byte == ' ') {
      rewritten += spaces->mark;
    } else {
      rewritten += byte;
    }
  }
  cut_from(step + 1, rewritten, start, scratch, sink);
}

void PreTokenizer::split(size_t step, std::string_view text, PieceStart start, PreTokenizerScratch& scratch,
                         WordSink& sink) const {
  const SplitStep& cut = std::get<SplitStep>(steps_[step]);
  const auto emit = [&](size_t begin, size_t end) {
    cut_from(step + 1, text.substr(begin, end - begin), begin == 0 ? start : PieceStart::kInside, scratch,
             sink);
  };
  PieceBuilder builder(cut.behavior, emit);
  size_t done = 0;
  size_t from = 0;
  std::optional<size_t> last_end;
  while (from <= text.size()) {
    const auto match = scratch.matcher.find(*cut.pattern, text, from);
    if (!match) break;
    if (match->begin == match->end && last_end == match->end) {
      // An empty match right after another one counts for nothing.
      if (from == text.size()) break;
      from += utf8_length(text[from]);
      continue;
    }
    if (done < match->begin) builder.add(done, match->begin, cut.swaps);
    builder.add(match->begin, match->end, !cut.swaps);
    done = from = match->end;
    last_end = match->end;
  }
  if (done < text.size()) builder.add(done, text.size(), cut.swaps);
  builder.finish();
}

}  // namespace lockstep
