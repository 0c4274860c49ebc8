#include "lockstep/datasets/text/internal/token_decoder.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

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

/// Replaces in each token. The limit is for all of them together.
void replace_in(std::string& token, const ReplaceStep& step, const RewrittenSize& limit, size_t& size) {
  std::string result;
  append_replaced(token, step, limit, result);
  token = std::move(result);
  size += token.size();
  limit.check(size);
}

void apply_step(const ReplaceStep& step, const RewrittenSize& limit, std::vector<std::string>& tokens) {
  size_t size = 0;
  for (std::string& token : tokens) replace_in(token, step, limit, size);
}

void apply_step(const ByteTokensStep&, const RewrittenSize&, std::vector<std::string>& tokens) {
  for (std::string& token : tokens)
    if (const auto byte = byte_of_token(token)) token.assign(1, *byte);
}

void apply_step(const FuseStep&, const RewrittenSize&, std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.assign(1, all);
}

void apply_step(const StripStep& step, const RewrittenSize&, std::vector<std::string>& tokens) {
  for (std::string& token : tokens) {
    std::string_view rest = token;
    for (size_t i = 0; i < step.from_begin && rest.starts_with(step.character); ++i)
      rest.remove_prefix(step.character.size());
    for (size_t i = 0; i < step.from_end && rest.ends_with(step.character); ++i)
      rest.remove_suffix(step.character.size());
    token = std::string(rest);
  }
}

void apply_step(const MarksStep& step, const RewrittenSize& limit, std::vector<std::string>& tokens) {
  const ReplaceStep writes_space{.from = step.mark, .to = " "};
  const ReplaceStep removes{.from = step.mark, .to = ""};
  size_t size = 0;
  for (size_t i = 0; i < tokens.size(); ++i)
    replace_in(tokens[i], i == 0 && step.removes_first ? removes : writes_space, limit, size);
}

}  // namespace

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  size_t size = 0;
  for (const std::string& token : tokens) size += token.size();
  const RewrittenSize limit(size);
  for (const DecoderStep& step : steps_)
    std::visit([&](const auto& rewriting) { apply_step(rewriting, limit, tokens); }, step);
  apply_step(FuseStep(), limit, tokens);
  return std::move(tokens.front());
}

}  // namespace lockstep
