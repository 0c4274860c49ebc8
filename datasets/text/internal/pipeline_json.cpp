#include "lockstep/datasets/text/internal/pipeline_json.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "lockstep/datasets/text/internal/utf8.h"

namespace lockstep {
namespace {

/// The most parts of a pipeline. Each takes time for every text, and each pre-tokenizer some of the stack.
constexpr size_t kMaxParts = 64;
/// The most special tokens that are put around a text.
constexpr size_t kMaxTemplateIds = 1024;

void append_parts(const JsonField& part, const std::string& list, std::vector<JsonField>& parts) {
  if (part.is_null()) return;
  if (part.type() != "Sequence") {
    if (parts.size() == kMaxParts)
      part.refuse("at most " + std::to_string(kMaxParts) + " parts in all", "more");
    return parts.push_back(part);
  }
  const JsonField sequence = part.member(list);
  if (!sequence.is_array()) sequence.refuse("a list");
  for (size_t i = 0; i < sequence.size(); ++i) append_parts(sequence.element(i), list, parts);
}

/// Returns the parts of a pipeline, which is one of them or a Sequence; the member `list` of a Sequence holds
/// its parts.
std::vector<JsonField> parts_of(const JsonField& pipeline, const std::string& list) {
  std::vector<JsonField> parts;
  append_parts(pipeline, list, parts);
  return parts;
}

std::string read_text(const JsonField& field) {
  std::string text = field.string();
  if (text.empty()) field.refuse("a string that is not empty");
  return text;
}

std::string read_character(const JsonField& field) {
  std::string text = read_text(field);
  if (utf8_length(text.front()) != text.size()) field.refuse("one character");
  return text;
}

/// Returns the text that a pattern of the form {"String": "..."} names.
std::string read_literal(const JsonField& pattern) {
  if (pattern.member("String").is_null()) pattern.refuse("an object with String", "another one");
  return read_text(pattern.member("String"));
}

std::shared_ptr<const Pattern> read_pattern(const JsonField& pattern) {
  const JsonField regex = pattern.member("Regex");
  try {
    if (regex.is_null()) return std::make_shared<Pattern>(Pattern::of_text(read_literal(pattern)));
    return std::make_shared<Pattern>(Pattern::of_regex(regex.string()));
  } catch (const std::invalid_argument& error) {
    pattern.refuse("a pattern that is supported", shown_text(error.what(), 200));
  }
}

SplitBehavior read_behavior(const JsonField& field) {
  const std::string name = field.string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  field.refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

SplitStep split_by(std::string_view regex, SplitBehavior behavior) {
  return {.pattern = std::make_shared<Pattern>(Pattern::of_regex(regex)), .behavior = behavior};
}

void read_byte_level(const JsonField& part, std::vector<PreTokenizerStep>& steps) {
  if (part.member("add_prefix_space").boolean())
    steps.emplace_back(SpaceStep{.mark = " ", .prefix = SpaceStep::Prefix::kAlways});
  if (part.member("use_regex").boolean(true))
    steps.emplace_back(split_by(kGpt2Words, SplitBehavior::kIsolated));
}

SpaceStep::Prefix read_prefix(const JsonField& part) {
  const JsonField scheme = part.member("prepend_scheme");
  if (scheme.is_null()) {
    return part.member("add_prefix_space").boolean(true) ? SpaceStep::Prefix::kAlways
                                                         : SpaceStep::Prefix::kNever;
  }
  if (scheme.string() == "always") return SpaceStep::Prefix::kAlways;
  if (scheme.string() == "first") return SpaceStep::Prefix::kFirst;
  if (scheme.string() == "never") return SpaceStep::Prefix::kNever;
  scheme.refuse("always, first or never");
}

void read_metaspace(const JsonField& part, std::vector<PreTokenizerStep>& steps) {
  const std::string mark = read_character(part.member("replacement"));
  steps.emplace_back(SpaceStep{.mark = mark, .prefix = read_prefix(part)});
  if (part.member("split").boolean(true)) {
    steps.emplace_back(SplitStep{.pattern = std::make_shared<Pattern>(Pattern::of_text(mark)),
                                 .behavior = SplitBehavior::kMergedWithNext});
  }
}

void read_pre_tokenizer_part(const JsonField& part, std::vector<PreTokenizerStep>& steps) {
  const std::string type = part.type();
  if (type == "ByteLevel") {
    read_byte_level(part, steps);
  } else if (type == "Split") {
    steps.emplace_back(SplitStep{.pattern = read_pattern(part.member("pattern")),
                                 .behavior = read_behavior(part.member("behavior")),
                                 .swaps = part.member("invert").boolean(false)});
  } else if (type == "Digits") {
    const bool is_individual = part.member("individual_digits").boolean(false);
    steps.emplace_back(
        split_by(R"(\p{N})", is_individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  } else if (type == "Metaspace") {
    read_metaspace(part, steps);
  } else {
    part.member("type").refuse("ByteLevel, Split, Digits, Metaspace or Sequence");
  }
}

/// Returns the size of a list of `what`, of which a template has at most kMaxTemplateIds.
size_t template_size(const JsonField& list, const std::string& what) {
  if (!list.is_array()) list.refuse("a list of " + what);
  if (list.size() > kMaxTemplateIds)
    list.refuse("at most " + std::to_string(kMaxTemplateIds) + " " + what, std::to_string(list.size()));
  return list.size();
}

/// Returns the ids of a special token of a template.
std::vector<uint32_t> read_template_ids(const JsonField& tokens, const std::string& name) {
  std::vector<uint32_t> ids;
  const JsonField list = tokens.member(name).member("ids");
  const size_t count = template_size(list, "ids");
  ids.reserve(count);
  for (size_t i = 0; i < count; ++i) ids.push_back(list.element(i).id());
  return ids;
}

TemplateParts read_template(const JsonField& part) {
  TemplateParts ids;
  const JsonField pieces = part.member("single");
  const size_t count = template_size(pieces, "special tokens and a sequence");
  size_t num_sequences = 0;
  for (size_t i = 0; i < count; ++i) {
    const JsonField piece = pieces.element(i);
    if (!piece.member("Sequence").is_null()) {
      const JsonField sequence = piece.member("Sequence").member("id");
      if (sequence.string() != "A") sequence.refuse("A");
      ++num_sequences;
      continue;
    }
    auto& side = num_sequences == 0 ? ids.ids_before : ids.ids_after;
    const auto added =
        read_template_ids(part.member("special_tokens"), piece.member("SpecialToken").member("id").string());
    side.insert(side.end(), added.begin(), added.end());
  }
  if (num_sequences != 1) pieces.refuse("the sequence A once", std::to_string(num_sequences) + " sequences");
  return ids;
}

TemplateParts read_post_processor_part(const JsonField& part) {
  const std::string type = part.type();
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "TemplateProcessing") return read_template(part);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    return {.ids_before = {part.member("cls").element(1).id()},
            .ids_after = {part.member("sep").element(1).id()}};
  }
  part.member("type").refuse("ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing or Sequence");
}

DecoderStep read_decoder_part(const JsonField& part) {
  constexpr uint64_t kMaxStrips = 1024;
  const std::string type = part.type();
  if (type == "Replace") {
    return ReplaceStep{.from = read_literal(part.member("pattern")), .to = part.member("content").string()};
  }
  if (type == "ByteFallback") return ByteTokensStep{};
  if (type == "Fuse") return FuseStep{};
  if (type == "Strip") {
    return StripStep{.character = read_character(part.member("content")),
                     .from_begin = part.member("start").number(kMaxStrips),
                     .from_end = part.member("stop").number(kMaxStrips)};
  }
  if (type == "Metaspace") {
    return MarksStep{.mark = read_character(part.member("replacement")),
                     .removes_first = read_prefix(part) != SpaceStep::Prefix::kNever};
  }
  part.member("type").refuse("Replace, ByteFallback, Fuse, Strip, Metaspace or Sequence");
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const JsonField& normalizer) {
  std::vector<NormalizerStep> steps;
  for (const JsonField& part : parts_of(normalizer, "normalizers")) {
    const std::string type = part.type();
    if (type == "NFC") {
      steps.emplace_back(UnicodeForm::kNfc);
    } else if (type == "NFD") {
      steps.emplace_back(UnicodeForm::kNfd);
    } else if (type == "NFKC") {
      steps.emplace_back(UnicodeForm::kNfkc);
    } else if (type == "NFKD") {
      steps.emplace_back(UnicodeForm::kNfkd);
    } else if (type == "Prepend") {
      steps.emplace_back(PrependStep{.text = part.member("prepend").string()});
    } else if (type == "Replace") {
      steps.emplace_back(
          ReplaceStep{.from = read_literal(part.member("pattern")), .to = part.member("content").string()});
    } else {
      part.member("type").refuse("NFC, NFD, NFKC, NFKD, Prepend, Replace or Sequence");
    }
  }
  return steps;
}

PreTokenizerParts read_pre_tokenizer(const JsonField& pre_tokenizer) {
  PreTokenizerParts parts;
  for (const JsonField& part : parts_of(pre_tokenizer, "pretokenizers")) {
    if (parts.is_byte_level) part.member("type").refuse("nothing after ByteLevel");
    read_pre_tokenizer_part(part, parts.steps);
    parts.is_byte_level = part.type() == "ByteLevel";
  }
  return parts;
}

TemplateParts read_post_processor(const JsonField& post_processor) {
  TemplateParts ids;
  for (const JsonField& part : parts_of(post_processor, "processors")) {
    // Each one puts its tokens around those of the ones before it.
    const TemplateParts outer = read_post_processor_part(part);
    ids.ids_before.insert(ids.ids_before.begin(), outer.ids_before.begin(), outer.ids_before.end());
    ids.ids_after.insert(ids.ids_after.end(), outer.ids_after.begin(), outer.ids_after.end());
    const size_t count = ids.ids_before.size() + ids.ids_after.size();
    if (count > kMaxTemplateIds)
      post_processor.refuse("at most " + std::to_string(kMaxTemplateIds) + " special tokens around a text",
                            std::to_string(count));
  }
  return ids;
}

std::vector<DecoderStep> read_decoder(const JsonField& decoder, SymbolKind symbols) {
  std::vector<DecoderStep> steps;
  if (symbols == SymbolKind::kCharacters && decoder.is_null())
    decoder.refuse("Replace, ByteFallback, Fuse, Strip, Metaspace or Sequence");
  for (const JsonField& part : parts_of(decoder, "decoders")) {
    if (symbols == SymbolKind::kCharacters) {
      steps.push_back(read_decoder_part(part));
    } else if (part.type() != "ByteLevel") {
      part.member("type").refuse("ByteLevel");
    }
  }
  return steps;
}

}  // namespace lockstep
