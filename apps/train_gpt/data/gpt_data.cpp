#include "lockstep/apps/train_gpt/data/gpt_data.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/internal/find_parquet_files.h"
#include "lockstep/datasets/parquet/parquet_dataset.h"
#include "lockstep/datasets/stores/internal/read_error.h"
#include "lockstep/datasets/text/open_tokenizer.h"
#include "lockstep/runtime/base/internal/number_text.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

/// Enough sequences that an epoch never ends: they are drawn when they are needed.
constexpr int64_t kGeneratedSequences = 1'000'000'000;
constexpr size_t kCheckedFiles = 10'000;

/// Returns whether one of the places is a file of tokens, or a folder that holds one.
bool has_token_files(const std::vector<std::string>& places) {
  const auto is_of_tokens = [](const fs::path& path) { return path.extension() == ".bin"; };
  for (const auto& place : places) {
    std::error_code error;
    if (!fs::is_directory(place, error)) {
      if (is_of_tokens(place)) return true;
      continue;
    }
    size_t seen = 0;
    for (fs::directory_iterator file(place, error), end; !error && file != end; file.increment(error)) {
      if (is_of_tokens(file->path())) return true;
      if (++seen == kCheckedFiles) break;
    }
  }
  return false;
}

std::string description_of(const GeneratedLanguageOptions& language) {
  std::string text = "generated language, whose lowest possible loss is known";
  if (language.num_names == 0) return text;
  const int64_t facts = int64_t{language.num_names} * language.num_names;
  const double bits = static_cast<double>(facts) * std::log2(language.num_names);
  return text + "; " + grouped_number(facts) + " facts of " + grouped_number(std::llround(bits)) + " bits";
}

GptData generate_data(const GptTrainOptions& options, int64_t sequence_length) {
  const auto texts = [&](uint64_t seed, int64_t count) {
    return TokenDataset(GeneratedText({.count = count,
                                       .sequence_length = sequence_length,
                                       .seed = seed,
                                       .language = language_of(options)}),
                        {.count = static_cast<size_t>(count)});
  };
  // Texts of even seeds to train on, and of an odd one to test on, the same for all seeds.
  TokenDataset train =
      texts(2 * options.seed, options.limit_train > 0 ? options.limit_train : kGeneratedSequences);
  const auto& language = std::get<GeneratedText>(train.source()).language();
  return {.train = train,
          .test = texts(1, options.limit_test),
          .codec = TextCodec(language),
          .vocabulary_size = language.vocab_size(),
          .description = description_of(language.options())};
}

/// The column of Parquet files that is read.
struct TokenColumn {
  std::string name;
  bool has_tokens = false;  // rather than text
};

/// Returns the column of the files that `places` name; none if they are no Parquet files. Throws DataError if
/// they have no such column, or some are Parquet files and some are not.
std::optional<TokenColumn> token_column(const std::vector<std::string>& places, const std::string& named) {
  if (!are_parquet_files(places)) return std::nullopt;
  const std::string first = find_parquet_files(places).front();
  const auto column_named = [&](const std::string& name) {
    const ParquetFile file({.path = first, .columns = {name}});
    return TokenColumn{.name = name, .has_tokens = file.columns().front().shape != ParquetShape::kBytes};
  };
  if (!named.empty()) return column_named(named);
  std::string problem;
  for (const char* name : {"input_ids", "tokens", "text"}) {
    try {
      return column_named(name);
    } catch (const ReadError&) {
      throw;  // it does not say that there is no such column
    } catch (const DataError& error) {
      problem = error.what();
    }
  }
  throw DataError(problem + "; --parquet-column names another one than input_ids, tokens and text");
}

constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "vocab.json", "merges.txt", "encoder.json",
                                           "vocab.bpe"};

/// Returns the name of the tokenizer: that of --tokenizer, else that beside --init-weights, else bytes for
/// text. Empty for token files without one.
std::string tokenizer_name(const GptTrainOptions& options, const BaseModel& base, bool has_tokens) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  std::error_code ignored;
  if (base.is_of_file) {
    const fs::path folder = fs::path(base.name).parent_path();
    for (const char* file : kTokenizerFiles)
      if (fs::exists(folder / file, ignored)) return folder.string();
  }
  return has_tokens || has_token_files(options.data) || has_token_files(options.test_data) ? "" : "bytes";
}

int64_t vocabulary_of(const GptTrainOptions& options, const BaseModel& base, const Tokenizer* tokenizer) {
  if (options.vocabulary_size > 0) return options.vocabulary_size;
  if (tokenizer != nullptr) return static_cast<int64_t>(tokenizer->vocabulary_size());
  if (base.is_fixed) return base.options.vocabulary_size;
  throw UsageError(c10::str(
      "--data ", c10::Join(",", options.data),
      ": expected --vocabulary-size, --tokenizer or a published --model with token files, which do not "
      "say how many different tokens there are"));
}

/// Names the tokenizer's files and when they were written.
std::string tokenizer_identity(const std::string& name) {
  std::string identity = name;
  std::error_code error;
  const auto add = [&](const fs::path& path) {
    const auto written = fs::last_write_time(path, error);
    if (!error)
      identity += c10::str(" ", fs::canonical(path, error).string(), " ", written.time_since_epoch().count());
  };
  if (fs::is_directory(name, error)) {
    for (const char* file : kTokenizerFiles) add(fs::path(name) / file);
  } else {
    add(name);
  }
  return identity;
}

TextEncoding encoding_of(const GptTrainOptions& options, const std::string& name,
                         const std::shared_ptr<const Tokenizer>& tokenizer) {
  const auto end = tokenizer->end_of_text();
  if (!end)
    throw DataError(
        "--tokenizer " + name +
        ": expected one with a token that ends a document, such as <|endoftext|>, but it has none");
  return {.encode =
              [tokenizer](std::string_view text) {
                return tokenizer->encode(text, {.adds_special_tokens = false, .reads_special_tokens = false});
              },
          .end_of_text = *end,
          .identity = tokenizer_identity(name),
          .json_field = options.json_field,
          .requires_utf8 = name != "bytes"};
}

/// The sequences of some files.
struct OpenSequences {
  TokenDataset::Source source;
  size_t size = 0;
  uint64_t num_tokens = 0;
};

template <typename Files>
OpenSequences opened(const Files& files) {
  return {.source = files, .size = *files.size(), .num_tokens = files.num_tokens()};
}

size_t limited(size_t count, int64_t limit) {
  return limit > 0 ? std::min(count, static_cast<size_t>(limit)) : count;
}

}  // namespace

GptData open_gpt_data(const GptTrainOptions& options, const BaseModel& base,
                      const std::function<void(const std::string&)>& log) {
  const int64_t length = sequence_length_of(options, base);
  if (is_generated(options)) return generate_data(options, length);
  const auto column = token_column(options.data, options.parquet_column);
  const std::string name = tokenizer_name(options, base, column && column->has_tokens);
  const std::shared_ptr<const Tokenizer> tokenizer = name.empty() ? nullptr : open_tokenizer(name);
  const int64_t vocabulary_size = vocabulary_of(options, base, tokenizer.get());
  // Sequences to train and to test on that are in the same files share their memory.
  const double memory =
      parse_bytes("parquet-memory", options.parquet_memory) / (options.test_data.empty() ? 1 : 2);
  const auto open = [&](const std::vector<std::string>& places,
                        const std::optional<TokenColumn>& of_places) -> OpenSequences {
    if (of_places && of_places->has_tokens)
      return opened(ParquetTokens({.paths = places,
                                   .column = of_places->name,
                                   .sequence_length = length,
                                   .vocab_size = static_cast<uint32_t>(vocabulary_size),
                                   .memory_limit = static_cast<int64_t>(memory)}));
    return opened(TokenFiles({.paths = places,
                              .sequence_length = length,
                              .vocab_size = static_cast<uint32_t>(vocabulary_size),
                              .format = options.token_format,
                              .encoding = tokenizer ? encoding_of(options, name, tokenizer) : TextEncoding{},
                              .parquet_column = of_places ? of_places->name : "",
                              .cache_folder = options.token_cache,
                              .on_message = log}));
  };
  const OpenSequences files = open(options.data, column);
  std::optional<OpenSequences> tests;
  size_t num_tests = 0;
  if (!options.test_data.empty()) {
    tests = open(options.test_data, token_column(options.test_data, options.parquet_column));
    num_tests = tests->size;
  } else {
    num_tests =
        std::max<size_t>(static_cast<size_t>(options.test_share * static_cast<double>(files.size)), 1);
    if (files.size < 2)
      throw DataError(c10::str("--data ", c10::Join(",", options.data),
                               ": expected tokens for at least 2 sequences of ", length,
                               ", one to train and one to test on, but got ", files.num_tokens,
                               " tokens; --test-data names other files to test on"));
  }
  const size_t num_train = tests ? files.size : files.size - num_tests;
  return {
      .train = TokenDataset(files.source, {.count = limited(num_train, options.limit_train)}),
      .test = TokenDataset(tests ? tests->source : files.source,
                           {.begin = tests ? 0 : num_train, .count = limited(num_tests, options.limit_test)}),
      .codec = TextCodec(tokenizer),
      .vocabulary_size = vocabulary_size,
      .description = c10::str(c10::Join(",", options.data), ", ", files.num_tokens, " tokens",
                              tests ? "; to test on: " + c10::Join(",", options.test_data) : "")};
}

}  // namespace lockstep::apps
