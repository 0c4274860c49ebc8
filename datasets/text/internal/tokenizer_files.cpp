#include "lockstep/datasets/text/internal/tokenizer_files.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/file_bytes.h"
#include "lockstep/datasets/text/internal/pipeline_json.h"
#include "lockstep/datasets/text/internal/utf8.h"
#include "lockstep/datasets/text/internal/vocabulary_reader.h"

namespace lockstep {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

/// Refuses what would make the merges mean something else.
void check_model(const JsonField& model) {
  // Files that tokenizers older than 0.9 wrote have no type.
  if (!model.member("type").is_null() && model.type() != "BPE") model.member("type").refuse("BPE");
  const JsonField dropout = model.member("dropout");
  if (!dropout.is_null() && dropout.json() != 0.0) dropout.refuse("null, as dropout makes ids random");
  for (const std::string name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonField affix = model.member(name);
    if (!affix.is_null() && !affix.string().empty()) affix.refuse("null or an empty string");
  }
}

BytePairModel::Parts read_model(const JsonField& model, SymbolKind symbols) {
  VocabularyReader reader(model.member("vocab"), symbols);
  const JsonField merges = model.member("merges");
  if (!merges.is_array()) merges.refuse("a list of merges");
  for (size_t i = 0; i < merges.size(); ++i) {
    const JsonField merge = merges.element(i);
    if (merge.is_array()) {
      if (merge.size() != 2) merge.refuse("two tokens", std::to_string(merge.size()));
      reader.add_merge(merge.file(), merge.path(), merge.element(0).string(), merge.element(1).string());
    } else {
      reader.add_merge(merge.file(), merge.path(), merge.string());
    }
  }
  return reader.take(model.member("ignore_merges").boolean(false));
}

AddedToken read_added_token(const JsonField& field) {
  AddedToken token{.text = field.member("content").string(),
                   .id = field.member("id").id(),
                   .is_special = field.member("special").boolean(),
                   .is_single_word = field.member("single_word").boolean(),
                   .takes_spaces_before = field.member("lstrip").boolean(),
                   .takes_spaces_after = field.member("rstrip").boolean(),
                   .is_normalized = field.member("normalized").boolean()};
  if (token.text.empty()) field.member("content").refuse("a string that is not empty");
  return token;
}

std::vector<AddedToken> read_added_tokens(const JsonField& list, const JsonField& vocabulary,
                                          const Vocabulary& tokens) {
  std::vector<AddedToken> added;
  if (list.is_null()) return added;
  if (!list.is_array()) list.refuse("a list of tokens");
  std::unordered_set<std::string> texts;
  std::unordered_set<uint32_t> ids;
  added.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonField field = list.element(i);
    added.push_back(read_added_token(field));
    const AddedToken& token = added.back();
    if (!texts.insert(token.text).second) field.member("content").refuse("a token that is not there yet");
    const auto known = vocabulary.json().find(token.text);
    const bool is_known = known != vocabulary.json().end();
    if (is_known && *known != token.id) {
      field.member("id").refuse("the id that model.vocab has for " + shown_text(token.text) + ", " +
                                known->dump());
    }
    if ((!is_known && tokens.contains(token.id)) || !ids.insert(token.id).second)
      field.member("id").refuse("an id that no other token has");
  }
  return added;
}

void check_template(const JsonField& field, const TokenizerParts& parts) {
  std::unordered_set<uint32_t> added;
  for (const AddedToken& token : parts.added_tokens) added.insert(token.id);
  for (const auto* ids : {&parts.ids_before, &parts.ids_after}) {
    for (const uint32_t id : *ids)
      if (!added.contains(id) && !parts.model.vocabulary.contains(id))
        field.refuse("ids of tokens", std::to_string(id));
  }
}

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

void read_merge_lines(const std::string& path, VocabularyReader& reader) {
  constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
  const auto bytes = read_file(path, kMaxBytes);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) throw DataError(path, "merges", "two tokens in each line", "an empty file");
  for (size_t line_number = 1; !text.empty(); ++line_number) {
    const std::string_view line = take_line(text);
    const std::string field = "line " + std::to_string(line_number);
    if (line_number == 1 && line.starts_with("#version")) continue;
    if (valid_utf8_prefix(line) != line.size()) throw DataError(path, field, "UTF-8", shown_text(line));
    reader.add_merge(path, field, line);
  }
}

}  // namespace

TokenizerParts read_tokenizer_json(const std::string& path) {
  const nlohmann::json json = read_json_file(path);
  const JsonField root(path, json);
  const JsonField model = root.member("model");
  if (!model.is_object()) {
    model.refuse(
        "an object, as in Hugging Face's tokenizer.json; a vocabulary alone goes with its merges, in two "
        "files");
  }
  if (!root.member("version").is_null() && root.member("version").string() != "1.0")
    root.member("version").refuse("1.0");
  check_model(model);

  TokenizerParts parts;
  parts.normalizer = read_normalizer(root.member("normalizer"));
  PreTokenizerParts pre_tokenizer = read_pre_tokenizer(root.member("pre_tokenizer"));
  parts.pre_tokenizer = std::move(pre_tokenizer.steps);
  if (!pre_tokenizer.is_byte_level && !model.member("byte_fallback").boolean(false)) {
    root.member("pre_tokenizer")
        .refuse("one that ends with ByteLevel, or a model with byte_fallback",
                "neither: some texts would have no tokens");
  }
  const SymbolKind symbols = pre_tokenizer.is_byte_level ? SymbolKind::kBytes : SymbolKind::kCharacters;
  parts.model = read_model(model, symbols);
  parts.added_tokens =
      read_added_tokens(root.member("added_tokens"), model.member("vocab"), parts.model.vocabulary);
  TemplateParts around = read_post_processor(root.member("post_processor"));
  parts.ids_before = std::move(around.ids_before);
  parts.ids_after = std::move(around.ids_after);
  check_template(root.member("post_processor"), parts);
  parts.decoder = read_decoder(root.member("decoder"), symbols);
  return parts;
}

TokenizerParts read_byte_pair_files(const BytePairFiles& files) {
  const nlohmann::json json = read_json_file(files.vocabulary);
  const JsonField root(files.vocabulary, json);
  if (root.is_object() && root.member("model").is_object())
    root.refuse("a vocabulary, which maps tokens to ids", "a whole tokenizer.json");
  VocabularyReader reader(root, SymbolKind::kBytes);
  read_merge_lines(files.merges, reader);

  TokenizerParts parts;
  parts.model = reader.take(/*ignores_merges=*/false);
  parts.pre_tokenizer.emplace_back(
      SplitStep{.pattern = std::make_shared<Pattern>(Pattern::of_regex(kGpt2Words))});
  if (const auto id = parts.model.vocabulary.find(kEndOfText))
    parts.added_tokens.push_back({.text = std::string(kEndOfText), .id = *id, .is_special = true});
  return parts;
}

}  // namespace lockstep
