// The named chat forms: see chat_forms.h. Data only; chat_renderer.cpp renders by it.
#include "model/chat/chat_forms.h"

namespace entrodraft::model {

namespace {

constexpr ChatTurn kChatmlSystem = {"<|im_start|>system\n", "<|im_end|>\n"};
constexpr ChatTurn kChatmlUser = {"<|im_start|>user\n", "<|im_end|>\n"};
constexpr ChatTurn kChatmlAssistant = {"<|im_start|>assistant\n", "<|im_end|>\n"};
constexpr std::string_view kChatmlGeneration = "<|im_start|>assistant\n";

constexpr ChatForm chatml(std::string_view name, std::optional<std::string_view> default_system,
                          SystemPlace place = SystemPlace::anywhere) {
    return {.name = name,
            .system_place = place,
            .system = kChatmlSystem,
            .user = kChatmlUser,
            .assistant = kChatmlAssistant,
            .generation = kChatmlGeneration,
            .default_system = default_system};
}

constexpr ChatForm with_start(ChatForm form, std::string_view name, std::string_view start) {
    form.name = name;
    form.start = start;
    return form;
}

constexpr ChatForm with_generation(ChatForm form, std::string_view name, std::string_view generation) {
    form.name = name;
    form.generation = generation;
    return form;
}

constexpr ChatForm with_reasoning(ChatForm form, Reasoning reasoning) {
    form.reasoning = reasoning;
    return form;
}

constexpr ChatForm kQwen3 = with_reasoning(chatml("qwen3", std::nullopt), Reasoning::qwen3);

constexpr ChatForm kLlama3 = {.name = "llama-3",
                              .start = "{bos}",
                              .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
                              .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
                              .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
                              .generation = "<|start_header_id|>assistant<|end_header_id|>\n\n",
                              .trim_user = Trim::content,
                              .trim_assistant = Trim::content,
                              .trim_system = true};

constexpr ChatForm llama3_1() {
    ChatForm form = kLlama3;
    form.name = "llama-3.1";
    form.start = "{bos?}";
    form.system_place = SystemPlace::first;
    form.system.before = "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
                         "Today Date: {date}\n\n";
    form.default_system = "";
    return form;
}

// The forms of Mistral differ in where spaces are and in which user turn takes the system message.
constexpr ChatForm mistral(std::string_view name, SystemPlace place, ChatTurn user, ChatTurn assistant) {
    return {.name = name,
            .start = "{bos?}",
            .system_place = place,
            .system = {"", "\n\n"},
            .user = user,
            .assistant = assistant,
            .alternates = true};
}

constexpr ChatForm mistral_v3() {
    ChatForm form = mistral("mistral-v3", SystemPlace::last_user, {"[INST] ", "[/INST]"}, {" ", "{eos}"});
    form.trim_assistant = Trim::content;
    return form;
}

constexpr ChatForm kGemma = {.name = "gemma",
                             .start = "{bos?}",
                             .system_place = SystemPlace::refused,
                             .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
                             .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
                             .generation = "<start_of_turn>model\n",
                             .trim_user = Trim::content,
                             .trim_assistant = Trim::content,
                             .alternates = true};

constexpr ChatForm kPhi3 = {.name = "phi-3",
                            .system = {"<|system|>\n", "<|end|>\n"},
                            .user = {"<|user|>\n", "<|end|>\n"},
                            .assistant = {"<|assistant|>\n", "<|end|>\n"},
                            .generation = "<|assistant|>\n"};

constexpr ChatForm phi3_5() {
    ChatForm form = kPhi3;
    form.name = "phi-3.5";
    form.skips_empty_system = true;
    return form;
}

// Phi-3's first form: no system message, and the assistant's turn opened by the user's.
constexpr ChatForm kPhi3First = {.name = "phi-3-first",
                                 .system_place = SystemPlace::refused,
                                 .user = {"<|user|>\n", "<|end|>\n<|assistant|>\n"},
                                 .assistant = {"", "<|end|>\n"}};

constexpr ChatForm kDeepseekR1 = {.name = "deepseek-r1",
                                  .start = "{bos?}",
                                  .system_place = SystemPlace::first,
                                  .user = {"<｜User｜>", ""},
                                  .assistant = {"<｜Assistant｜>", "<｜end▁of▁sentence｜>"},
                                  .generation = "<｜Assistant｜><think>\n",
                                  .reasoning = Reasoning::cut};

constexpr ChatForm kForms[] = {
    chatml("chatml", std::nullopt),
    with_start(chatml("", std::nullopt), "chatml-bos", "{bos?}"),
    chatml("qwen1.5", "You are a helpful assistant"),
    chatml("qwen2", "You are a helpful assistant."),
    chatml("qwen2.5", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    chatml("qwen2.5-math", "Please reason step by step, and put your final answer within \\boxed{}."),
    kQwen3,
    with_generation(kQwen3, "qwen3-thinking", "<|im_start|>assistant\n<think>\n"),
    chatml("smollm2", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    {.name = "llama-2",
     .system_place = SystemPlace::first_user,
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .user = {"{bos}[INST] ", " [/INST]"},
     .assistant = {" ", " {eos}"},
     .trim_user = Trim::turn,
     .trim_assistant = Trim::content,
     .alternates = true},
    kLlama3,
    llama3_1(),
    mistral("mistral-no-system", SystemPlace::refused, {"[INST] ", " [/INST]"}, {"", "{eos}"}),
    mistral("mistral-no-system-space", SystemPlace::refused, {"[INST] ", " [/INST]"}, {"", "{eos} "}),
    mistral("mistral-v1", SystemPlace::first_user, {" [INST] ", " [/INST]"}, {" ", "{eos}"}),
    mistral_v3(),
    mistral("mistral-nemo", SystemPlace::last_user, {"[INST]", "[/INST]"}, {"", "{eos}"}),
    {.name = "mistral-v7",
     .start = "{bos?}",
     .system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"},
     .user = {"[INST] ", "[/INST]"},
     .assistant = {" ", "{eos}"}},
    kGemma,
    with_start(kGemma, "gemma-no-bos", ""),
    {.name = "zephyr",
     .system = {"<|system|>\n", "{eos}\n"},
     .user = {"<|user|>\n", "{eos}\n"},
     .assistant = {"<|assistant|>\n", "{eos}\n"},
     .generation = "<|assistant|>\n"},
    kPhi3,
    with_start(kPhi3, "phi-3-bos", "{bos?}"),
    phi3_5(),
    kPhi3First,
    with_start(kPhi3First, "phi-3-first-bos", "{bos?}"),
    {.name = "phi-4",
     .system = {"<|im_start|>system<|im_sep|>", "<|im_end|>"},
     .user = {"<|im_start|>user<|im_sep|>", "<|im_end|>"},
     .assistant = {"<|im_start|>assistant<|im_sep|>", "<|im_end|>"},
     .generation = "<|im_start|>assistant<|im_sep|>"},
    {.name = "phi-4-first",
     .system = {"<|im_start|>system<|im_sep|>", "<|im_end|>"},
     .user = {"<|im_start|>user<|im_sep|>", "<|im_end|><|im_start|>assistant<|im_sep|>"},
     .assistant = {"", "<|im_end|>"}},
    {.name = "phi-4-mini",
     .system = {"<|system|>", "<|end|>"},
     .user = {"<|user|>", "<|end|>"},
     .assistant = {"<|assistant|>", "<|end|>"},
     .generation = "<|assistant|>"},
    {.name = "vicuna",
     .start = "{bos?}",
     .system_place = SystemPlace::first,
     .system = {"", " "},
     .user = {"USER: ", " "},
     .assistant = {"ASSISTANT: ", "{eos}"},
     .generation = "ASSISTANT:",
     .default_system = "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
                       "helpful, detailed, and polite answers to the user's questions.",
     .alternates = true},
    {.name = "falcon-instruct",
     .system_place = SystemPlace::first,
     .user = {"\n\nUser: ", ""},
     .assistant = {"\n\nAssistant: ", ""},
     .generation = "\n\nAssistant:",
     .trim_user = Trim::content,
     .trim_assistant = Trim::content,
     .trim_system = true,
     .alternates = true,
     .halves_blank_lines = true},
    {.name = "falcon-chat",
     .system = {"System: ", ""},
     .user = {"User: ", ""},
     .assistant = {"Falcon: ", ""},
     .generation = "\nFalcon:",
     .between = "\n"},
    {.name = "falcon-3",
     .system = {"<|system|>\n", "\n"},
     .user = {"<|user|>\n", "\n"},
     .assistant = {"<|assistant|>\n", "{eos}\n"},
     .generation = "<|assistant|>\n"},
    {.name = "deepseek-llm",
     .start = "{bos?}",
     .system = {"", "\n\n"},
     .user = {"User: ", "\n\n"},
     .assistant = {"Assistant: ", "{eos}"},
     .generation = "Assistant:"},
    kDeepseekR1,
    with_generation(kDeepseekR1, "deepseek-r1-no-think", "<｜Assistant｜>"),
    {.name = "openchat",
     .start = "{bos?}",
     .system = {"GPT4 Correct System: ", "<|end_of_turn|>"},
     .user = {"GPT4 Correct User: ", "<|end_of_turn|>"},
     .assistant = {"GPT4 Correct Assistant: ", "<|end_of_turn|>"},
     .generation = "GPT4 Correct Assistant:"},
    {.name = "solar",
     .system = {"### System:\n", "\n\n"},
     .user = {"### User:\n", "\n\n"},
     .assistant = {"### Assistant:\n", ""},
     .generation = "### Assistant:\n",
     .skips_empty_system = true},
};

} // namespace

std::span<const ChatForm> chat_forms() {
    return kForms;
}

const ChatForm* find_chat_form(std::string_view name) {
    for (const ChatForm& form : kForms)
        if (form.name == name) return &form;
    return nullptr;
}

} // namespace entrodraft::model
