#include "lockstep/datasets/text/internal/token_decoder.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {
namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    result.append(text.substr(done, at - done)).append(to);
    done = at + from.size();
  }
  return result.append(text.substr(done));
}

/// Returns the byte that a token such as <0x0A> stands for.
std::optional<char> byte_of_token(std::string_view token) {
  constexpr size_t kSize = 6;
  if (token.size() != kSize || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  uint8_t byte = 0;
  const char* const end = token.data() + kSize - 1;
  const auto result = std::from_chars(token.data() + 3, end, byte, 16);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return static_cast<char>(byte);
}

void apply_step(const ReplaceStep& step, std::vector<std::string>& tokens) {
  for (std::string& token : tokens) token = replaced(token, step.from, step.to);
}

void apply_step(const ByteTokensStep&, std::vector<std::string>& tokens) {
  for (std::string& token : tokens)
    if (const auto byte = byte_of_token(token)) token.assign(1, *byte);
}

void apply_step(const FuseStep&, std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.assign(1, all);
}

void apply_step(const StripStep& step, std::vector<std::string>& tokens) {
  for (std::string& token : tokens) {
    std::string_view rest = token;
    for (size_t i = 0; i < step.from_begin && rest.starts_with(step.character); ++i)
      rest.remove_prefix(step.character.size());
    for (size_t i = 0; i < step.from_end && rest.ends_with(step.character); ++i)
      rest.remove_suffix(step.character.size());
    token = std::string(rest);
  }
}

void apply_step(const MarksStep& step, std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = replaced(tokens[i], step.mark, i == 0 && step.removes_first ? "" : " ");
}

}  // namespace

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  for (const DecoderStep& step : steps_)
    std::visit([&](const auto& rewriting) { apply_step(rewriting, tokens); }, step);
  apply_step(FuseStep(), tokens);
  return std::move(tokens.front());
}

}  // namespace lockstep
