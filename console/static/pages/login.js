// The login: the console acts as the user, so that ACLs hold.
import { change, Problem, session } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Field, ProblemBox } from "../lib/ui.js";

export default function LoginPage() {
  const { mechanisms, bootstrap_servers: servers } = session.value;
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [mechanism, setMechanism] = useState(mechanisms[0]);
  const [problem, setProblem] = useState(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Log in · Ottla";
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      session.value = await change("POST", "session", { username: user, password, mechanism });
    } catch (error) {
      setProblem(error instanceof Problem ? error.details : { title: String(error) });
      setPassword("");
      setBusy(false);
    }
  };
  return html`<form class="card login" onSubmit=${submit}>
    <h1>Log in to Ottla</h1>
    <p class="dim">With your user of the cluster at ${servers}. You may do what its ACLs allow.</p>
    <${ProblemBox} problem=${problem} />
    <${Field} label="User" value=${user} onInput=${setUser} required autocomplete="username" name="username" />
    <${Field} label="Password" type="password" value=${password} onInput=${setPassword} required autocomplete="current-password" name="password" />
    <${Field} label="Mechanism" type="select" value=${mechanism} onInput=${setMechanism} options=${mechanisms} />
    <button type="submit" class="button primary" disabled=${isBusy}>${isBusy ? "Logging in …" : "Log in"}</button>
  </form>`;
}
