#pragma once

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/text/internal/byte_alphabet.h"
#include "lockstep/datasets/text/internal/utf8.h"

namespace lockstep::testing {

inline std::string token_of_byte(int byte, bool is_byte_level) {
  if (is_byte_level) {
    std::string token;
    append_utf8(character_of_byte(static_cast<uint8_t>(byte)), token);
    return token;
  }
  std::array<char, 8> token{};
  std::snprintf(token.data(), token.size(), "<0x%02X>", byte);
  return token.data();
}

/// A vocabulary of all bytes, whose ids are their values.
inline nlohmann::json byte_vocabulary(bool is_byte_level = true) {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[token_of_byte(byte, is_byte_level)] = byte;
  return vocabulary;
}

/// Adds merges, and their tokens with the next ids. Tokens are as files spell them.
inline void add_merges(nlohmann::json& model,
                       const std::vector<std::pair<std::string, std::string>>& merges) {
  for (const auto& [left, right] : merges) {
    nlohmann::json& vocabulary = model["vocab"];
    for (const std::string& token : {left, right, left + right})
      if (!vocabulary.contains(token)) vocabulary[token] = vocabulary.size();
    model["merges"].push_back(left + " " + right);
  }
}

inline nlohmann::json added_token(const std::string& text, int id, bool is_special = true) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", is_special}};
}

/// A tokenizer.json like GPT-2's, with the merges "h e", "l l", "he ll", "hell o", "_ hello" (with a space)
/// as 256 to 260, and "<|endoftext|>" as 261.
inline nlohmann::json byte_level_json() {
  nlohmann::json model = {{"type", "BPE"}, {"vocab", byte_vocabulary()}, {"merges", nlohmann::json::array()}};
  add_merges(model, {{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"\xC4\xA0", "hello"}});
  return {{"version", "1.0"},
          {"added_tokens", {added_token("<|endoftext|>", 261)}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", model}};
}

/// A tokenizer.json like Llama 2's, with some merges, and "<s>" before each text.
inline nlohmann::json character_json() {
  const std::string mark = "\xE2\x96\x81";
  nlohmann::json model = {{"type", "BPE"},
                          {"byte_fallback", true},
                          {"vocab", byte_vocabulary(false)},
                          {"merges", nlohmann::json::array()}};
  add_merges(model, {{"h", "i"}, {mark, "hi"}, {mark, mark}, {"\xC3\xA9", "t"}});
  const int begin = static_cast<int>(model["vocab"].size());
  return {{"added_tokens", {added_token("<s>", begin)}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", mark}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
            {"special_tokens", {{"<s>", {{"ids", {begin}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model", model}};
}

}  // namespace lockstep::testing
