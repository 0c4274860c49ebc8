#include "lockstep/datasets/text/byte_pair_tokenizer.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "lockstep/datasets/text/internal/scratch_pool.h"
#include "lockstep/datasets/text/internal/tokenizer_files.h"
#include "lockstep/datasets/text/internal/utf8.h"

namespace lockstep {
class BytePairTokenizer::Pipeline {
 public:
  explicit Pipeline(TokenizerParts parts)
      : normalizer_(std::move(parts.normalizer)),
        added_(std::move(parts.added_tokens), normalizer_),
        pre_tokenizer_(std::move(parts.pre_tokenizer)),
        model_(std::move(parts.model)),
        ids_before_(std::move(parts.ids_before)),
        ids_after_(std::move(parts.ids_after)),
        decoder_(std::move(parts.decoder)),
        vocabulary_size_(model_.vocabulary().size()),
        scratches_([this] {
          return std::make_unique<EncodeScratch>(EncodeScratch{.words = model_.make_scratch()});
        }) {
    for (const AddedToken& token : added_.tokens()) {
      added_by_id_.emplace(token.id, &token);
      vocabulary_size_ = std::max(vocabulary_size_, size_t{token.id} + 1);
      if (token.is_special) special_tokens_.push_back({.text = token.text, .id = token.id});
    }
    std::sort(special_tokens_.begin(), special_tokens_.end(),
              [](const SpecialToken& a, const SpecialToken& b) { return a.id < b.id; });
  }

  size_t vocabulary_size() const { return vocabulary_size_; }
  const std::vector<SpecialToken>& special_tokens() const { return special_tokens_; }

  void append_ids(std::string_view text, const EncodeOptions& options, std::vector<uint32_t>& ids) const {
    const auto scratch = scratches_.take();
    if (options.adds_special_tokens) ids.insert(ids.end(), ids_before_.begin(), ids_before_.end());
    auto start = PieceStart::kText;
    while (!text.empty()) {
      const size_t valid = valid_utf8_prefix(text);
      if (valid > 0) append_valid(text.substr(0, valid), start, options, *scratch, ids);
      text.remove_prefix(valid);
      if (text.empty()) break;
      ids.push_back(model_.byte_id(text.front()));
      text.remove_prefix(1);
      start = PieceStart::kBrokenBytes;
    }
    if (options.adds_special_tokens) ids.insert(ids.end(), ids_after_.begin(), ids_after_.end());
  }

  std::string text_of(std::span<const uint32_t> ids, const DecodeOptions& options) const {
    std::string text;
    std::vector<std::string> tokens;
    const bool is_byte_level = model_.symbols() == SymbolKind::kBytes;
    for (const uint32_t id : ids) {
      const auto added = added_by_id_.find(id);
      std::string_view token;
      if (added != added_by_id_.end()) {
        if (options.skips_special_tokens && added->second->is_special) continue;
        token = added->second->normal_text;
      } else if (model_.vocabulary().contains(id)) {
        token = model_.vocabulary().token(id);
      } else {
        throw std::invalid_argument("[BytePairTokenizer] expected ids of tokens, which are below " +
                                    std::to_string(vocabulary_size_) + ", but got " + std::to_string(id));
      }
      if (is_byte_level) {
        text += token;
      } else {
        tokens.emplace_back(token);
      }
    }
    return is_byte_level ? text : decoder_.decode(std::move(tokens));
  }

 private:
  /// The memory that encoding a text needs. Used by one thread at a time.
  struct EncodeScratch {
    PreTokenizerScratch pre_tokenizer;
    WordScratch words;
    std::string normalized;
    std::vector<TextPart> original_parts;
    std::vector<TextPart> normalized_parts;

    void trim() {
      pre_tokenizer.trim();
      words.trim();
      release_if_large(normalized);
      release_if_large(original_parts);
      release_if_large(normalized_parts);
    }
  };

  /// Appends the ids of each word.
  class WordEncoder final : public WordSink {
   public:
    WordEncoder(const BytePairModel& model, WordScratch& scratch, std::vector<uint32_t>& ids)
        : model_(model), scratch_(scratch), ids_(ids) {}

    void add_word(std::string_view word) override { model_.append_word(word, scratch_, ids_); }

   private:
    const BytePairModel& model_;
    WordScratch& scratch_;
    std::vector<uint32_t>& ids_;
  };

  /// Appends the ids of text that is valid UTF-8.
  void append_valid(std::string_view text, PieceStart start, const EncodeOptions& options,
                    EncodeScratch& scratch, std::vector<uint32_t>& ids) const {
    scratch.original_parts.clear();
    added_.split_original(text, options.reads_special_tokens, scratch.pre_tokenizer.matcher,
                          scratch.original_parts);
    for (const TextPart& part : scratch.original_parts) {
      if (part.token) {
        ids.push_back(*part.token);
      } else {
        append_part(text.substr(part.begin, part.end - part.begin),
                    part.begin == 0 ? start : PieceStart::kInside, options, scratch, ids);
      }
    }
  }

  /// Appends the ids of text without tokens that are found in the original text.
  void append_part(std::string_view part, PieceStart start, const EncodeOptions& options,
                   EncodeScratch& scratch, std::vector<uint32_t>& ids) const {
    const std::string_view text = normalizer_.apply(part, start, scratch.normalized);
    scratch.normalized_parts.clear();
    added_.split_normalized(text, options.reads_special_tokens, scratch.pre_tokenizer.matcher,
                            scratch.normalized_parts);
    WordEncoder words(model_, scratch.words, ids);
    for (const TextPart& piece : scratch.normalized_parts) {
      if (piece.token) {
        ids.push_back(*piece.token);
      } else {
        pre_tokenizer_.cut(text.substr(piece.begin, piece.end - piece.begin),
                           piece.begin == 0 ? start : PieceStart::kInside, scratch.pre_tokenizer, words);
      }
    }
  }

  Normalizer normalizer_;
  AddedTokens added_;
  PreTokenizer pre_tokenizer_;
  BytePairModel model_;
  std::vector<uint32_t> ids_before_;
  std::vector<uint32_t> ids_after_;
  TokenDecoder decoder_;
  size_t vocabulary_size_;
  std::vector<SpecialToken> special_tokens_;
  std::unordered_map<uint32_t, const AddedToken*> added_by_id_;
  mutable ScratchPool<EncodeScratch> scratches_;
};

BytePairTokenizer::BytePairTokenizer(const std::string& path)
    : pipeline_(std::make_unique<Pipeline>(read_tokenizer_json(path))) {}

BytePairTokenizer::BytePairTokenizer(const BytePairFiles& files)
    : pipeline_(std::make_unique<Pipeline>(read_byte_pair_files(files))) {}

BytePairTokenizer::~BytePairTokenizer() = default;
BytePairTokenizer::BytePairTokenizer(BytePairTokenizer&& other) noexcept = default;
BytePairTokenizer& BytePairTokenizer::operator=(BytePairTokenizer&& other) noexcept = default;

size_t BytePairTokenizer::vocabulary_size() const {
  return pipeline_->vocabulary_size();
}

const std::vector<SpecialToken>& BytePairTokenizer::special_tokens() const {
  return pipeline_->special_tokens();
}

void BytePairTokenizer::append_ids(std::string_view text, const EncodeOptions& options,
                                   std::vector<uint32_t>& ids) const {
  pipeline_->append_ids(text, options, ids);
}

std::string BytePairTokenizer::text_of(std::span<const uint32_t> ids, const DecodeOptions& options) const {
  return pipeline_->text_of(ids, options);
}

}  // namespace lockstep
