#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/datasets/text/internal/pattern.h"

namespace lockstep {

/// The context in front of a piece of text. Some tokenizers begin pieces with a space that the text does not
/// have.
enum class PieceStart {
  kText,         ///< nothing: the text begins with it
  kInside,       ///< another piece
  kBrokenBytes,  ///< bytes that are not valid UTF-8, which end no word: never begins with an added space
};

/// The treatment of the matches of a pattern, and of the text between them.
enum class SplitBehavior {
  kRemoved,             ///< only the text between matches remains
  kIsolated,            ///< each match and each text between matches is a piece
  kMergedWithPrevious,  ///< a match is the end of the text before it
  kMergedWithNext,      ///< a match is the beginning of the text after it
  kContiguous,          ///< as kIsolated, but matches next to each other are one piece
};

struct SplitStep {
  std::shared_ptr<const Pattern> pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool swaps = false;  ///< matches and the text between them swap their roles
};

/// Writes spaces as `mark`, and puts it before pieces that do not begin with it.
struct SpaceStep {
  enum class Prefix { kNever, kFirst, kAlways };
  std::string mark = " ";
  Prefix prefix = Prefix::kNever;  ///< kFirst: only of the piece at the beginning of the text
};

using PreTokenizerStep = std::variant<SplitStep, SpaceStep>;

/// Takes the words that a text is cut into.
class WordSink {
 public:
  virtual void add_word(std::string_view word) = 0;

 protected:
  ~WordSink() = default;
};

/// The memory that cutting needs. Used by one thread at a time.
struct PreTokenizerScratch {
  PatternMatcher matcher;
  std::vector<std::string> texts;  ///< what each step has rewritten

  void trim();
};

/// Cuts text into words: each step cuts the pieces of the step before. Thread-safe.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  /// Hands each word to `sink`, in order; words are not empty. Throws DataError as PatternMatcher::find().
  void cut(std::string_view text, PieceStart start, PreTokenizerScratch& scratch, WordSink& sink) const;

 private:
  void cut_from(size_t step, std::string_view text, PieceStart start, PreTokenizerScratch& scratch,
                WordSink& sink) const;
  void split(size_t step, std::string_view text, PieceStart start, PreTokenizerScratch& scratch,
             WordSink& sink) const;

  std::vector<PreTokenizerStep> steps_;
};

}  // namespace lockstep
