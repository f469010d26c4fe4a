//! `elasticjob`: the one binary. All of it is in the library beside, so that tests reach it.

fn main() -> std::process::ExitCode {
    elasticjob_cli::main()
}
