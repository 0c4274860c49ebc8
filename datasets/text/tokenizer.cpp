#include "lockstep/datasets/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace lockstep {

std::vector<uint32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<uint32_t> ids;
  append_ids(text, options, ids);
  return ids;
}

std::vector<std::vector<uint32_t>> Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                                           const EncodeOptions& options,
                                                           size_t num_threads) const {
  std::vector<std::vector<uint32_t>> ids(texts.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (size_t i = next++; i < texts.size(); i = next++) append_ids(texts[i], options, ids[i]);
    } catch (...) {
      next = texts.size();  // the others stop after their text
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    const size_t wanted = num_threads > 0 ? num_threads : std::max(1U, std::thread::hardware_concurrency());
    const size_t used = std::min(wanted, texts.size());
    std::vector<std::jthread> threads;
    threads.reserve(used);
    for (size_t i = 1; i < used; ++i) threads.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
  return ids;
}

std::optional<uint32_t> Tokenizer::special_token(std::string_view text) const {
  for (const SpecialToken& token : special_tokens())
    if (token.text == text) return token.id;
  return std::nullopt;
}

std::optional<uint32_t> Tokenizer::end_of_text() const {
  constexpr std::array<std::string_view, 5> kNames = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                                      "<｜end▁of▁sentence｜>"};
  for (const std::string_view name : kNames)
    if (const auto id = special_token(name)) return id;
  return std::nullopt;
}

}  // namespace lockstep
