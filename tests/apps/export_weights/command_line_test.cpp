#include "lockstep/apps/export_weights/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;

std::string export_refusal(const std::vector<std::string>& arguments) {
  try {
    parse_export_command_line(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ExportCommandLine, TakesTwoFilesAndFlagsAnywhere) {
  const auto plain = parse_export_command_line({"in", "out.pt"});
  EXPECT_EQ(plain.action, ExportAction::kExport);
  EXPECT_EQ(plain.in, "in");
  EXPECT_EQ(plain.out, "out.pt");
  EXPECT_FALSE(plain.replaces);
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"--force", "in", "out.safetensors"},
                                                                     {"in", "-f", "out.safetensors"},
                                                                     {"in", "out.safetensors", "--force"}})
    EXPECT_TRUE(parse_export_command_line(arguments).replaces);
  EXPECT_EQ(parse_export_command_line({"--", "--in", "-o.pth"}).in, "--in");
}

TEST(ExportCommandLine, TakesTheModelOfALanguageModelAndAFolder) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"--model", "run/model.json", "in.pt", "gpt"},
                                             {"in.pt", "--model=run/model.json", "gpt"},
                                             {"in.pt", "gpt", "--model", "run/model.json"}}) {
    const auto line = parse_export_command_line(arguments);
    EXPECT_EQ(line.model, "run/model.json");
    EXPECT_EQ(line.in, "in.pt");
    EXPECT_EQ(line.out, "gpt");
  }
  EXPECT_EQ(parse_export_command_line({"in", "out.pt"}).model, "");
  EXPECT_EQ(export_refusal({"--model", "model.json", "in.pt", "gpt.safetensors"}),
            "OUT: expected a folder, as --model writes two files, but got 'gpt.safetensors'");
  EXPECT_EQ(export_refusal({"in.pt", "gpt", "--model"}),
            "--model: expected a model.json after it, but got nothing");
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"--model=", "in.pt", "gpt"}, {"--model", "", "in.pt", "gpt"}})
    EXPECT_EQ(export_refusal(arguments), "--model: expected a model.json, but got ''");
  EXPECT_THAT(export_refusal({"in.pt", "gpt", "--modle", "m"}), HasSubstr("(did you mean --model?)"));
}

TEST(ExportCommandLine, HelpAndVersionNeedNoFiles) {
  EXPECT_EQ(parse_export_command_line({"--help"}).action, ExportAction::kHelp);
  EXPECT_EQ(parse_export_command_line({"in", "-h"}).action, ExportAction::kHelp);
  EXPECT_EQ(parse_export_command_line({"--version"}).action, ExportAction::kVersion);
  EXPECT_THAT(export_help_text(), HasSubstr("export_weights [flags] IN OUT"));
}

TEST(ExportCommandLine, SaysWhatWasExpected) {
  EXPECT_THAT(export_refusal({}), HasSubstr("expected two files, IN and OUT, but got 0"));
  EXPECT_THAT(export_refusal({"a", "b.pt", "c.pt"}), HasSubstr("but got 3"));
  EXPECT_THAT(export_refusal({"a", "b.pt", "--forse"}),
              HasSubstr("--forse: expected a flag of this program (did you mean --force?)"));
  EXPECT_THAT(export_refusal({"a", "b.onnx"}),
              HasSubstr("OUT: expected a name that ends in .safetensors, .pt or .pth, but got 'b.onnx'"));
}

TEST(ExportCommandLine, HelpFitsIntoATerminalOf100Columns) {
  std::istringstream help(export_help_text());
  for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace lockstep::apps
