// Tests the built program on files written by Lockstep; tests/training has those written by Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/models/gpt/gpt_configuration.h"
#include "lockstep/models/gpt/gpt_weights.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/process_runner.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::TemporaryFolder;

::lockstep::testing::ProcessResult export_weights(const std::vector<std::string>& arguments) {
  return ::lockstep::testing::run_process(EXPORT_WEIGHTS, arguments);
}

void expect_export_refusal(const std::vector<std::string>& arguments, int exit_code,
                           const std::string& part) {
  const auto result = export_weights(arguments);
  EXPECT_EQ(result.exit_code, exit_code) << result.error;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.error, MatchesRegex("export_weights: error: [^\n]*\n"));
  EXPECT_THAT(result.error, HasSubstr(part));
}

NamedTensors example_weights() {
  return {{"head.weight", torch::arange(6.0).view({2, 3})}, {"head.bias", torch::tensor({1, 2})}};
}

void expect_example_weights(const std::string& path) {
  auto weights = load_weights(path);
  std::sort(weights.begin(), weights.end(),
            [](const auto& left, const auto& right) { return left.first > right.first; });
  ASSERT_EQ(weights.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(weights[i].first, example_weights()[i].first);
    EXPECT_TRUE(torch::equal(weights[i].second, example_weights()[i].second));
  }
}

TEST(ExportWeightsProgram, ConvertsEachFormatIntoEach) {
  const TemporaryFolder folder;
  const std::vector<std::string> names{"a.safetensors", "a.pt", "a.pth"};
  for (const auto& in : names) {
    save_weights(folder.file(in), example_weights());
    for (const auto& out : names) {
      const auto result = export_weights({folder.file(in), folder.file("out-" + out), "--force"});
      EXPECT_EQ(result.exit_code, 0) << result.error;
      EXPECT_EQ(result.out, folder.file("out-" + out) + ": 2 tensors, 40 bytes\n");
      EXPECT_EQ(result.error, "");
      expect_example_weights(folder.file("out-" + out));
    }
  }
}

/// Writes the model.json and the weights of a Llama, as train_gpt does.
Gpt write_trained_model(const TemporaryFolder& folder) {
  Gpt model(GptOptions{.vocabulary_size = 13,
                       .max_length = 8,
                       .num_layers = 2,
                       .num_heads = 2,
                       .num_key_value_heads = 1,
                       .width = 8,
                       .hidden_width = 12,
                       .positions = GptPositions::kRotary,
                       .norm = GptNorm::kRmsNorm,
                       .activation = GptActivation::kSwiGlu,
                       .has_attention_bias = false,
                       .has_mlp_bias = false});
  save_weights(folder.file("last.safetensors"), state_dict(*model));
  folder.write("model.json", gpt_configuration_text(model->options()));
  return model;
}

TEST(ExportWeightsProgram, WritesALanguageModelAsAFolderOfHuggingFace) {
  const TemporaryFolder folder;
  Gpt model = write_trained_model(folder);
  const auto out = folder.file("parent/gpt");
  const auto result =
      export_weights({"--model", folder.file("model.json"), folder.file("last.safetensors"), out});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, MatchesRegex(".*/gpt: 21 tensors, [0-9]+ bytes\n"));
  Gpt loaded(read_gpt_configuration(out + "/config.json"));
  load_gpt_weights(loaded, load_weights(out + "/model.safetensors"));
  const auto tokens = torch::arange(8, torch::kLong).view({1, 8});
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(loaded->forward(tokens), model->forward(tokens)));
}

TEST(ExportWeightsProgram, RefusesALanguageModelThatDoesNotFit) {
  const TemporaryFolder folder;
  write_trained_model(folder);
  const auto weights = folder.file("last.safetensors"), out = folder.file("gpt");
  auto other = read_gpt_configuration(folder.file("model.json"));
  other.hidden_width = 16;
  const auto model = folder.write("other.json", gpt_configuration_text(other));
  expect_export_refusal(
      {"--model", model, weights, out}, 4,
      weights + ": tensor 'blocks.0.gate.weight': expected Float [16, 8], but got Float [12, 8]");
  expect_export_refusal({"--model", folder.file("absent.json"), weights, out}, 4,
                        "--model " + folder.file("absent.json"));
  expect_export_refusal({"--model", model, weights, out + ".pt"}, 2, "OUT: expected a folder");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(ExportWeightsProgram, ReplacesAFileOnlyWhenToldTo) {
  const TemporaryFolder folder;
  save_weights(folder.file("in.pt"), example_weights());
  const auto out = folder.write("out.pt", "old");
  expect_export_refusal({folder.file("in.pt"), out}, 2, out + ": expected no such file yet");
  EXPECT_EQ(bytes_of(out), "old");
  EXPECT_EQ(export_weights({"--force", folder.file("in.pt"), out}).exit_code, 0);
  expect_example_weights(out);
  EXPECT_EQ(export_weights({"--force", out, out}).exit_code, 0);
  expect_example_weights(out);
}

TEST(ExportWeightsProgram, InputThatCannotBeUsedEndsWithExitCode4) {
  const TemporaryFolder folder;
  const auto out = folder.file("out.pt");
  expect_export_refusal({folder.file("absent.pt"), out}, 4, "absent.pt: cannot open");
  expect_export_refusal({folder.write("text.pt", "no weights here"), out}, 4, "text.pt: ");
  expect_export_refusal({folder.write("cut.pt", "PK\3\4"), out}, 4, "cut.pt: zip directory: ");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(ExportWeightsProgram, MistakesAndUnwritablePlacesHaveTheirExitCodes) {
  const TemporaryFolder folder;
  save_weights(folder.file("in.pt"), example_weights());
  expect_export_refusal({folder.file("in.pt")}, 2, "expected two files");
  expect_export_refusal({folder.file("in.pt"), folder.file("out.bin")}, 2, "OUT: ");
  expect_export_refusal({"--focre", folder.file("in.pt"), folder.file("out.pt")}, 2, "did you mean --force?");
  expect_export_refusal({folder.file("in.pt"), folder.file("absent/out.pt")}, 7, "No such file or directory");
}

TEST(ExportWeightsProgram, PrintsItsHelpAndVersion) {
  EXPECT_THAT(export_weights({"--help"}).out, HasSubstr("Usage:\n  export_weights [flags] IN OUT"));
  EXPECT_THAT(export_weights({"--version"}).out,
              MatchesRegex("export_weights [0-9.]+, LibTorch 2\\.[0-9.]+\n"));
}

}  // namespace
}  // namespace lockstep
